"""The exchange's view of a block of edges (graph/blocks.py has them), and the items of streams."""

from typing import Generic, NamedTuple, Protocol, Self, TypeVar

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


class Part(NamedTuple, Generic[EdgesT]):
    """Edges that can be computed now: what a stream yields. Its rows are valid only until the next.

    Attributes:
        block: the edges; its rows are numbered within the own rows `at`.
        rows: (columns, F), the rows of its columns.
        scale: (columns,) their factors, or None.
        back: (columns, R), to which returns to the rows are added, or None.
        at: a slice of own rows.
        complete: whether the block has all edges of these rows.
    """

    block: EdgesT
    rows: torch.Tensor
    scale: torch.Tensor | None = None
    back: torch.Tensor | None = None
    at: slice = slice(None)
    complete: bool = False
