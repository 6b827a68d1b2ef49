"""Attributes of HDF5 objects: numbers, and texts of fixed length.

By default, h5py writes texts with variable length. HDF5 keeps those in a "global heap", the one part of its metadata
without a checksum: one flipped bit in it held the library in an endless loop (HDF5 2.0). So texts are written with
their length, which leaves them in the checksummed object header. Other texts are refused without being read.
"""

from typing import Any

import h5py
import numpy as np

from hpcgnn.errors import FormatError

LARGEST = 1 << 24  # bytes of one attribute; names of types and the options of a run take some thousand


def write_attributes(place: Any, **attributes: Any) -> None:
    """Set texts, numbers or lists of numbers on an open file, group or dataset."""
    for name, value in attributes.items():
        if isinstance(value, str):
            encoded = value.encode(errors="replace")  # of a file's name that is no text
            value = np.array(encoded, dtype=h5py.string_dtype("utf-8", max(1, len(encoded))))
        place.attrs[name] = value


def read_attributes(place: Any) -> dict[str, Any]:
    """Return {name: str or numpy scalar or array} of an open file, group or dataset.

    Raises:
        FormatError: an attribute is refused. Damage raises h5py's own errors.
    """
    found, attributes = {}, place.attrs
    for name in attributes:
        described = attributes.get_id(name)
        size = int(np.prod(described.shape, dtype=np.float64)) * described.dtype.itemsize
        if described.dtype.kind not in "iufbS" or size > LARGEST:
            raise FormatError(
                f"{place.file.filename}: attribute {name!r} of {place.name} is refused: expected a number or a text "
                f"of fixed length, at most {LARGEST} bytes, got {described.dtype} of {size} bytes. The file is "
                "corrupted, from another program, or older than format version 2: make it again"
            )
        value = attributes[name]
        try:
            found[name] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{place.file.filename}: attribute {name!r} of {place.name} is no text in UTF-8: {error}"
            ) from error
    return found
