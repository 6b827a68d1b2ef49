"""Blocks of the adjacency: own rows, and the columns of one round of the halo.

At scale a rank has very many blocks with very few rows each. A full row pointer per block would cost 8·n_p·P = 8·n
bytes on every rank, constant in P. So a block stores its non-empty rows only. All blocks together are linear in the
edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.exchange.plan import count_keys, grouped
from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.placement.ownership import MOST_INT32


class EdgeArrays(NamedTuple):
    """Edges of blocks, one block after another. rows: int32 (E,), own rows; columns: int (E,); weight, edge: (E,) of
    the blocks, or None.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    weight: torch.Tensor | None
    edge: torch.Tensor | None

    def taken(self, which: torch.Tensor) -> "EdgeArrays":
        """Those at these places, or bool (E,)."""
        return EdgeArrays(*(None if each is None else each[which] for each in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Block:
    """A sparse matrix block with own rows and the columns of one source buffer.

    Arrays over edges may be longer than E = indptr[R], with room for edges that other epochs have.

    Attributes:
        indptr: int64 (R + 1,).
        indices: int32 (E,), rows of the source buffer.
        rows: int32 (R,) strictly increasing, the non-empty own rows, or None for all of them.
        weight: (E,) of the computing dtype, or None for ones.
        first_column: the halo position of column 0; None if the columns are the own nodes, or all of the node's
            (graph/transforms/within_node.py).
        edge: int32 or int64 (E,), the place of each edge in the rank's list of edges, or None.
        returns: int32 (E,), the row that gets the return over each edge; None: its column's row.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    rows: torch.Tensor | None = None
    weight: torch.Tensor | None = None
    first_column: int | None = None
    edge: torch.Tensor | None = None
    returns: torch.Tensor | None = None

    @cached_property
    def num_rows(self) -> int:
        """Of the rows that are stored."""
        return len(self.indptr) - 1

    @property
    def edge_rows(self) -> torch.Tensor:
        """int32 (E,): the own row of each edge."""
        stored = torch.arange(self.num_rows, dtype=torch.int32) if self.rows is None else self.rows
        return torch.repeat_interleave(stored, torch.diff(self.indptr))

    @property
    def arrays(self) -> EdgeArrays:
        """Its edges. Columns are those of its source buffer."""
        return EdgeArrays(self.edge_rows, self.indices, self.weight, self.edge)

    @property
    def structure(self) -> dict[str, torch.Tensor | None]:
        """Which edges there are, as arguments of kernels."""
        return {"indptr": self.indptr, "indices": self.indices, "rows": self.rows}

    @property
    def span(self) -> tuple[int, int]:
        """(first, one past the last) of the rows that are stored."""
        if self.rows is None or self.num_rows == 0:
            return 0, self.num_rows
        return int(self.rows[0]), int(self.rows[-1]) + 1

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def nbytes(self) -> int:
        tensors = self.indptr, self.indices, self.rows, self.weight, self.edge, self.returns
        return sum(t.nbytes for t in tensors if t is not None)

    def of_rows(self, indptr: torch.Tensor, rows: torch.Tensor) -> "Block":
        """The block of some consecutive rows of those that are stored: their part of indptr, and which they are."""
        return replace(self, indptr=indptr, rows=rows)

    def slice(self, first: int, last: int) -> "Block":
        """The block of its rows [first, last); of a block that stores all rows."""
        return replace(self, indptr=self.indptr[first : last + 1], rows=None)


def own_block(
    num_rows: int, rows: np.ndarray, columns: np.ndarray, weight: torch.Tensor | None, edge: torch.Tensor | None = None
) -> Block:
    """The block of edges that stay on the rank; rows int (E,) ascending, columns int32 (E,), weight and edge (E,)."""
    indptr = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=indptr[1:])
    return Block(torch.from_numpy(indptr), torch.from_numpy(columns), None, weight, None, edge)


def halo_blocks(
    starts: np.ndarray,
    indptr: np.ndarray,
    halo: np.ndarray,
    weight: torch.Tensor | None,
    edge: torch.Tensor | None = None,
) -> list[Block]:
    """One hypersparse block per round, checked.

    starts: int64 (rounds + 1,), the halo position where each round begins. indptr: int64 (n_p + 1,), by own row; halo:
    int (E,), the halo position of each edge's source; weight, edge: (E,). In addition to the blocks it takes 4 bytes
    for each edge.
    """

    def round_of(part: slice) -> np.ndarray:
        return (np.searchsorted(starts, halo[part], side="right") - 1).astype(small)

    small = np.min_scalar_type(len(starts))
    counts = count_keys(round_of, len(halo), len(starts) - 1)
    columns, rows = np.empty(len(halo), np.int32), np.empty(len(halo), np.int32)
    moved = [None if each is None else torch.empty_like(each) for each in (weight, edge)]
    for rounds, edges, places in grouped(round_of, len(halo), counts):
        columns[places] = halo[edges] - starts[rounds]
        start = int(edges.min())
        rows[places] = edge_rows(indptr, start, start + len(edges))[edges - start]
        for new, old in zip(moved, (weight, edge), strict=True):
            if new is not None and old is not None:
                new[torch.from_numpy(places)] = old[torch.from_numpy(edges)]
    blocks, end = [], 0
    for index, count in enumerate(counts.tolist()):
        part = np.s_[end : end + count]
        end += count
        weights, numbers = (None if each is None else each[part] for each in moved)
        arrays = EdgeArrays(torch.from_numpy(rows[part]), torch.from_numpy(columns[part]), weights, numbers)
        block = _stored(arrays, int(starts[index]))
        width = int(starts[index + 1] - starts[index])
        kernels.check_block(block.indptr, block.indices, block.rows, len(indptr) - 1, width)
        blocks.append(block)
    return blocks


def edges_of(blocks: Sequence[Block], num_own: int, num_halo: int) -> EdgeArrays:
    """The edges of blocks. The columns of the halo, num_halo, count on from those of the own block, num_own."""
    kind = torch.int32 if num_own + num_halo <= MOST_INT32 else torch.int64
    none = torch.zeros(0, dtype=torch.int32)
    shifts = [0 if block.first_column is None else num_own + block.first_column for block in blocks]
    columns = [block.indices.to(kind) + shift for block, shift in zip(blocks, shifts, strict=True)]
    return EdgeArrays(
        torch.cat([none, *(block.edge_rows for block in blocks)]),
        torch.cat([none.to(kind), *columns]),
        joined([block.weight for block in blocks]),
        joined([block.edge for block in blocks]),
    )


def _stored(edges: EdgeArrays, first_column: int | None) -> Block:
    """The Block of edges in the order of rows, which stores the rows that have any."""
    begins = np.flatnonzero(np.diff(edges.rows.numpy(), prepend=np.int32(-1)))
    indptr, rows = torch.from_numpy(np.append(begins, len(edges.rows))), edges.rows[torch.from_numpy(begins)]
    return Block(indptr, edges.columns, rows, edges.weight, first_column, edges.edge)


def joined(columns: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """An array over edges that all blocks have or none has, one block after another."""
    found = [column for column in columns if column is not None]
    assert len(found) in (0, len(columns)), "all blocks of a rank carry the same"
    return torch.cat(found) if found else None


def transposed(block: Block) -> Block:
    """The Block with rows and columns exchanged: its stored rows are the columns that have edges, and its columns own
    rows.

    Several edges between the same two nodes stay in their order. first_column is then the halo position of row 0.
    """
    edges = block.arrays.taken(torch.argsort(block.indices, stable=True))
    return _stored(edges._replace(rows=edges.columns, columns=edges.rows), block.first_column)


def sampled(block: Block, kept: torch.Tensor, first_column: int, renumber: bool = True) -> Block:
    """The Block of the edges from columns with kept (columns,) bool; those are numbered anew, from halo position
    first_column, or keep their numbers.
    """
    edges = block.arrays.taken(kept[block.indices])
    if renumber:
        edges = edges._replace(columns=(torch.cumsum(kept, 0, dtype=torch.int32) - 1)[edges.columns])
    return _stored(edges, first_column)


ROUNDING = 2.0**-23


def weight_sums(rows: np.ndarray, weight: np.ndarray | None, num_rows: int) -> np.ndarray:
    """float64 (num_rows,): Σ w by row, 0.0 where weights cancel. rows: int (E,); weight: float (E,), or None for
    ones.

    All means (sage by node, rgcn by node and relation) have one rule: Σ w x / Σ w wherever Σ w is not 0, also for
    negative sums. Where it is 0 the mean is 0, as for a node without edges. Weights are float32. A sum of at most 2^-23
    of the sum of absolute values consists of rounding (0.1 + 0.2 - 0.3), and counts as 0. Symmetric normalisation takes
    roots, so sums below 0 are an error there (app/graph_checks.py).
    """
    total = np.bincount(rows, weight, minlength=num_rows).astype(np.float64)
    if weight is not None and len(weight) and weight.min() < 0:
        total[np.abs(total) <= ROUNDING * np.bincount(rows, np.abs(weight), minlength=num_rows)] = 0.0
    return total
