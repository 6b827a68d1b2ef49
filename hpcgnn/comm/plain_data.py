"""Small Python values as JSON, for transports whose connections another user may reach: reading one runs no code.

None, truth values, numbers and texts are themselves. Lists are too; all other kinds are an object of one entry, whose
name says what its value is.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np


def to_bytes(value: Any) -> bytes:
    """The bytes of a value. Raises TypeError for anything but plain data and numpy's arrays of numbers."""
    return json.dumps(_tagged(value)).encode()


def of_bytes(data: bytes) -> Any:
    """The value of `to_bytes`. Raises ValueError for bytes that are not of one."""
    try:
        return json.loads(data, object_hook=_untagged)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"expected plain data, got {data[:40]!r}: {error}") from error


def _tagged(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_tagged(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [_tagged(each) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[_tagged(key), _tagged(each)] for key, each in value.items()]}
    if isinstance(value, frozenset):
        return {"set": [_tagged(each) for each in value]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
        if isinstance(value, np.generic):
            return value.item()
        return {"array": [value.dtype.str, value.shape, base64.b64encode(np.ascontiguousarray(value).data).decode()]}
    raise TypeError(f"objects between ranks are plain data, got {type(value).__name__}")


def _untagged(value: dict[str, Any]) -> Any:
    ((kind, held),) = value.items()
    return _KINDS[kind](held)


def _array(held: list[Any]) -> np.ndarray:
    dtype, shape, text = held
    return np.frombuffer(bytearray(base64.b64decode(text)), np.dtype(dtype)).reshape(shape)


_KINDS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "dict": dict,
    "set": frozenset,
    "bytes": base64.b64decode,
    "array": _array,
}
