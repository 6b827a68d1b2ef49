"""A matrix as layers read it, which may lie elsewhere than in memory."""

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
