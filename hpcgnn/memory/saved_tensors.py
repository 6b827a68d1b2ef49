"""Data that may lie elsewhere than in memory: a matrix as layers read it, and tensors that are unused for a while."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch


class StoredRows(ABC):
    """A matrix (n, F) that never changes. shape, dtype: as of a tensor."""

    shape: tuple[int, int]
    dtype: torch.dtype

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def reading(self, stop: int | None = None) -> AbstractContextManager[Any]:
        """Read rows 0 … stop - 1 (None: all) in the body, in their order. The reader is indexed by a slice of
        rows; its select(ids, out) picks increasing rows, int32, to `out`.
        """

    @abstractmethod
    def mapped(self, make: Callable[[torch.Tensor], torch.Tensor]) -> "StoredRows | torch.Tensor":
        """make(x) of the whole matrix x, which makes every column (n,) of its result of that column alone."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> "StoredRows":
        """The same numbers in another type, or this matrix itself."""


class SavedTensor:
    """A tensor for later. memory() returns its memory, the same one whenever it is called; None: it stays in memory."""

    def __init__(self, tensor: torch.Tensor, memory: Callable[[], torch.UntypedStorage] | None = None) -> None:
        self._tensor = tensor if memory is None else None
        self._memory = memory
        self._like = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> torch.Tensor:
        """It, in memory. While any tensor with the same memory is kept, all get the same memory back."""
        if self._memory is None:
            assert self._tensor is not None, "it stays in memory"
            return self._tensor
        dtype, offset, shape, stride = self._like
        return torch.empty(0, dtype=dtype).set_(self._memory(), offset, shape, stride)


class SavedTensorPool:
    """Keeps saved tensors in memory. A subclass may put them elsewhere, to stay within a number of bytes."""

    def keep(self, tensor: torch.Tensor) -> SavedTensor:
        """A tensor, which nobody writes to until it is asked for."""
        return SavedTensor(tensor)

    def note(self, taken: int) -> None:
        """taken: bytes in use of the arena, after each that it gives."""

    def gone(self, address: int) -> None:
        """Memory of the arena at this address is free again."""

    def make_room(self, size: int) -> bool:
        """Whether memory was freed because the arena may not grow by `size` bytes."""
        return False
