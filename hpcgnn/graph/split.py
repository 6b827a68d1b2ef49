"""The edges of a rank, with self loops added, split by their sources' owner into own and remote edges.

At the start of a job a rank holds most here in addition to its share: its edges once more, and a byte for each.
"""

from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.graph.blocks import Block, weight_sums
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
        features: (E_p, F) of the computing dtype, of in-edges, or None (own_rows.py).
    """

    count: int
    weight: torch.Tensor | None
    type: torch.Tensor | None
    features: torch.Tensor | None = None


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


def with_loops(edges: FoundEdges, rank: int, loop_type: int) -> FoundEdges:
    """The FoundEdges in the local order with a loop of weight 1 and type `loop_type` behind the edges of each row that
    has none.
    """
    missing = np.ones(len(edges.indptr) - 1, bool)
    for part, rows in edges.blocks():
        missing[rows[(edges.owner[part] == rank) & (edges.local_id[part] == rows)]] = False
    rows = np.flatnonzero(missing)
    ends = edges.indptr[rows + 1]
    return FoundEdges(
        edges.indptr + np.concatenate([[0], np.cumsum(missing)]),
        np.insert(edges.owner, ends, rank),
        np.insert(edges.local_id, ends, rows),
        None if edges.weight is None else np.insert(edges.weight, ends, 1),
        None if edges.type is None else np.insert(edges.type, ends, loop_type),
    )


def split_edges(edges: FoundEdges, rank: int, dtype: torch.dtype, keep_edges: bool) -> tuple[Block, RemoteEdges]:
    """(the Block of the edges between own nodes, the RemoteEdges) of FoundEdges in the local order of a rank.

    dtype: of weights. keep_edges: tell the place of each edge among all of them.
    """
    place = np.int32 if len(edges.owner) <= MOST_INT32 else np.int64
    mine = edges.owner == rank

    def part(chosen: np.ndarray) -> tuple[FoundEdges, torch.Tensor | None, torch.Tensor | None]:
        found = FoundEdges(edges.indptr, edges.owner, edges.local_id, edges.weight).taken(chosen)
        weight = None if found.weight is None else torch.from_numpy(found.weight).to(dtype)
        return found, weight, torch.from_numpy(np.arange(len(mine), dtype=place)[chosen]) if keep_edges else None

    own, weight, places = part(mine)
    block = Block(torch.from_numpy(own.indptr), torch.from_numpy(own.local_id), weight=weight, edge=places)
    away, weight, places = part(~mine)
    return block, RemoteEdges(away.indptr, away.owner, away.local_id, weight, places)


def degrees_of(edges: FoundEdges) -> torch.Tensor:
    """float64 (n_p,): the sum of the weights of each row's edges, see `Adjacency`."""
    degree = np.zeros(len(edges.indptr) - 1)
    for part, rows in edges.blocks():
        if len(rows):
            first, last = int(rows[0]), int(rows[-1]) + 1
            weight = None if edges.weight is None else edges.weight[part]
            degree[first:last] = weight_sums(rows - first, weight, last - first)
    return torch.from_numpy(degree)
