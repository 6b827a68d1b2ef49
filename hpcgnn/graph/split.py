"""The edges of a rank, split by their sources' owner into own and remote edges, with self loops added.

At the start of a job a rank holds most here in addition to its share of the edges. So it goes over the edges some rows
at a time, and puts them in their final place: the own block, or columns of the remote edges. These make the plan and
the halo's blocks. Only the input and the result are as long as all edges.
"""

from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.graph.blocks import Block
from hpcgnn.graph.sums import weight_sums
from hpcgnn.graphfile.ranges import row_blocks
from hpcgnn.placement.order import FoundEdges
from hpcgnn.placement.ownership import MOST_INT32


@dataclass(frozen=True)
class EdgeList:
    """Data of the edges of the own rows, by own row in the order of the file, an added self loop last.

    `Block.edge` points into it.

    Attributes:
        count: E_p.
        weight: (E_p,) of the computing dtype, or None.
        type: int32 (E_p,), or None.
        features: (E_p, F) of the computing dtype, of in-edges, or None (edge_features.py).
    """

    count: int
    weight: torch.Tensor | None
    type: torch.Tensor | None
    features: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (self.weight, self.type, self.features) if each is not None)


@dataclass(frozen=True)
class RemoteEdges:
    """Edges from other ranks' nodes, by own row.

    Attributes:
        indptr: int64 (n_p + 1,).
        owner, local_id: int and int32 (E,), owning rank and local number of each source.
        weight: (E,) of the computing dtype, or None.
        place: (E,) in the EdgeList, or None.
    """

    indptr: np.ndarray
    owner: np.ndarray
    local_id: np.ndarray
    weight: torch.Tensor | None = None
    place: torch.Tensor | None = None


@dataclass(frozen=True)
class SplitEdges:
    """own: Block of the edges between own nodes. away: RemoteEdges. degree: float64 (n_p,), see `Adjacency`. kept:
    EdgeList, or None.
    """

    own: Block
    away: RemoteEdges
    degree: np.ndarray
    kept: EdgeList | None


def split_edges(
    edges: FoundEdges, rank: int, add_loops: bool, loop_type: int, dtype: torch.dtype, keep_edges: bool
) -> SplitEdges:
    """SplitEdges of FoundEdges in the local order of a rank. dtype: of weights. keep_edges: keep an EdgeList.

    add_loops: every node that has none gets one loop of weight 1 and type `loop_type`, after its other edges.
    """
    num_rows, blocks = len(edges.indptr) - 1, list(row_blocks(edges.indptr))
    indptr, missing = _count(edges, rank, add_loops, blocks)
    total, num_own = len(edges.owner) + int(missing.sum()), int(indptr[-1])
    weight = None if edges.weight is None else torch.empty(0, dtype=dtype).numpy().dtype
    kind = None if edges.type is None else np.dtype(np.int32)
    place = np.dtype(np.int32 if total <= MOST_INT32 else np.int64) if keep_edges else None
    own = _Columns(num_own, local_id=np.dtype(np.int32), weight=weight, place=place)
    ends = {"owner": edges.owner.dtype, "local_id": np.dtype(np.int32)}
    away = _Columns(total - num_own, **ends, weight=weight, place=place)
    kept = _Columns(total, weight=weight, type=kind) if keep_edges else None
    degree, begin = np.zeros(num_rows), 0
    for first, last in blocks:
        found = _with_loops(edges, rank, first, last, missing[first:last], loop_type)
        rows = found["rows"]
        assert rows is not None and found["owner"] is not None, "every edge has two ends"
        degree[first:last] = weight_sums(rows - first, found["weight"], last - first)
        found["place"] = np.arange(begin, begin + len(rows))
        begin += len(rows)
        mine = found["owner"] == rank
        own.put(found, mine)
        away.put(found, ~mine)
        if kept is not None:
            kept.put(found, np.s_[:])
    return SplitEdges(
        Block(
            torch.from_numpy(indptr),
            torch.from_numpy(own.array("local_id")),
            weight=own.tensor("weight"),
            edge=own.tensor("place"),
        ),
        RemoteEdges(
            edges.indptr + np.concatenate([[0], np.cumsum(missing)]) - indptr,
            away.array("owner"),
            away.array("local_id"),
            away.tensor("weight"),
            away.tensor("place"),
        ),
        degree,
        None if kept is None else EdgeList(total, kept.tensor("weight"), kept.tensor("type")),
    )


def _count(
    edges: FoundEdges, rank: int, add_loops: bool, blocks: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """(indptr int64 (n_p + 1,) of the own block, bool (n_p,): the rows that get a loop)."""
    missing = np.full(len(edges.indptr) - 1, add_loops)
    indptr = np.zeros(len(edges.indptr), np.int64)
    for first, last in blocks:
        part = np.s_[edges.indptr[first] : edges.indptr[last]]
        mine = edges.owner[part] == rank
        rows = _rows(edges, first, last)[mine]
        if add_loops:
            missing[rows[edges.local_id[part][mine] == rows]] = False
        indptr[first + 1 : last + 1] = np.bincount(rows - first, minlength=last - first)
    indptr[1:] += missing
    np.cumsum(indptr, out=indptr)
    return indptr, missing


def _rows(edges: FoundEdges, first: int, last: int) -> np.ndarray:
    """int32: the row of each edge of the rows [first, last)."""
    return np.repeat(np.arange(first, last, dtype=np.int32), np.diff(edges.indptr[first : last + 1]))


def _with_loops(
    edges: FoundEdges, rank: int, first: int, last: int, missing: np.ndarray, loop_type: int
) -> dict[str, np.ndarray | None]:
    """{column: values} of the edges of the rows [first, last), with a loop after those of each row that is missing
    one: bool (last - first,).
    """
    part = np.s_[edges.indptr[first] : edges.indptr[last]]
    rows, lonely = _rows(edges, first, last), np.flatnonzero(missing)
    found: dict[str, np.ndarray | None] = {"rows": rows, "owner": edges.owner[part], "local_id": edges.local_id[part]}
    for name, column in (("weight", edges.weight), ("type", edges.type)):
        found[name] = None if column is None else column[part]
    if len(lonely) == 0:
        return found
    # An edge moves on by the loops of the rows before its own. A loop has the edges of its row and the loops before it.
    edge_at = np.arange(len(rows)) + (np.cumsum(missing) - missing)[rows - first]
    loop_at = edges.indptr[first + 1 + lonely] - edges.indptr[first] + np.arange(len(lonely))
    loops = {"rows": first + lonely, "owner": rank, "local_id": first + lonely, "weight": 1, "type": loop_type}
    for name, column in found.items():
        if column is not None:
            found[name] = merged = np.empty(len(rows) + len(lonely), column.dtype)
            merged[edge_at], merged[loop_at] = column, loops[name]
    return found


class _Columns:
    """Columns of edges by name, filled from the front; None for columns without a type."""

    def __init__(self, count: int, **types: np.dtype | None) -> None:
        self._filled = 0
        self._columns = {name: np.empty(count, kind) for name, kind in types.items() if kind is not None}

    def put(self, found: dict[str, np.ndarray | None], chosen: np.ndarray | slice) -> None:
        """Append the chosen ones of the values {column: values}."""
        end = self._filled
        for name, column in self._columns.items():
            values = found[name]
            assert values is not None, "what has a type has values"
            taken = values[chosen]
            end = self._filled + len(taken)
            column[self._filled : end] = taken
        self._filled = end

    def array(self, name: str) -> np.ndarray:
        return self._columns[name]

    def tensor(self, name: str) -> torch.Tensor | None:
        return torch.from_numpy(self._columns[name]) if name in self._columns else None
