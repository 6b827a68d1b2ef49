"""Ordinary tensors over memory that somebody else takes back once the last reference to them is gone."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

#: The size of a page: large memory begins at a multiple of it, and has as many bytes.
GRAIN = 4096


def rounded(nbytes: int) -> int:
    """The next multiple of GRAIN."""
    return -(-nbytes // GRAIN) * GRAIN


class _Lent(np.ndarray):
    """The bytes of a tensor, as torch holds on to them; a subclass, because plain arrays cannot be watched."""


def lent(memory: Any, nbytes: int, start: int, give_back: Callable[..., object], *args: Any) -> torch.UntypedStorage:
    """A storage of `nbytes` bytes of a buffer from `start` on; give_back(*args) is called when nothing refers to it.

    That may be in any thread, and within any statement: give_back must be one that cannot be divided.
    """
    taken = np.frombuffer(memory, np.uint8, nbytes, start).view(_Lent)
    weakref.finalize(taken, give_back, *args).atexit = False
    return torch.from_numpy(taken).untyped_storage()


def shaped(storage: torch.UntypedStorage, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """The tensor of a storage. Not a view: autograd forbids to write in place to one that an operator has returned."""
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape)  # type: ignore[call-overload] # strides follow
