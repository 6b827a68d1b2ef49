"""The exchange's view of a block of edges (graph/blocks.py has them), and the items of streams."""

from typing import Protocol, Self, TypeVar

import torch


class Edges(Protocol):
    """Edges between own rows and the columns of one source buffer, grouped by row. Fields as of a Block.

    Attributes:
        indptr: int64 (R + 1,).
        indices: int32 (E,).
        rows: int32 (R,), the stored own rows, or None for all of them.
        first_column: the halo position of column 0, or None if the columns are the own nodes.
    """

    @property
    def indptr(self) -> torch.Tensor: ...

    @property
    def indices(self) -> torch.Tensor: ...

    @property
    def rows(self) -> torch.Tensor | None: ...

    @property
    def first_column(self) -> int | None: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def num_edges(self) -> int: ...

    @property
    def span(self) -> tuple[int, int]:
        """(first, one past the last) of the rows that are stored."""

    def slice(self, first: int, last: int) -> Self:
        """The block of its rows [first, last), which are then counted from 0; of a block that stores all rows."""

    def of_rows(self, indptr: torch.Tensor, rows: torch.Tensor) -> Self:
        """The block of some consecutive stored rows: their part of indptr, and their numbers."""


#: The blocks of one stream are all of one type.
EdgesT = TypeVar("EdgesT", bound=Edges)
#: (block, rows, scale, back); see stream.py.
Yielded = tuple[EdgesT, torch.Tensor, torch.Tensor | None, torch.Tensor | None]
