"""The rank of each held-out pair's score among the scores of the pairs of a pool's nodes with its target.

The rank of a pair (i ← j) is 1, plus one for each candidate v of the pool with a higher score of (v, i), plus half for
each with the same score. Candidates with a known edge to i are left out, and so is i itself (the filtered setting of
Bordes et al., NIPS'13). Scores are computed in float64 and compared in float32, so that equal rows tie
whatever the order in which a product was summed.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch

from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.edge_tiles import edge_tiles
from hpcgnn.graphfile.ranges import segments
from hpcgnn.ops.node_pool import NodePool, places_in
from hpcgnn.ops.row_tiles import edge_tile_bytes, in_rows
from hpcgnn.ops.tile_rows import picked


class Scorer(Protocol):
    """Scores of pairs: see nn/scorers.py."""

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor: ...

    def against(self, pool: torch.Tensor, target: torch.Tensor) -> torch.Tensor: ...


class Known:
    """Which candidates of a pool are left out for each own node: itself, and those known to have an edge to it.

    edges: (a block of own nodes' in-edges, the original ids of its columns) for all that are known.
    """

    def __init__(self, pool: NodePool, num_owned: int, edges: Iterable[tuple[Block, torch.Tensor]]) -> None:
        size = len(pool.ids)
        found = [(pool.rows * size + pool.places).numpy()]
        for block, ids in edges:
            places = places_in(pool.ids, ids)[block.indices.long()]
            rows = block.edge_rows.long()
            hit = places >= 0
            found.append(np.unique((rows[hit] * size + places[hit]).numpy()))
        pairs = np.unique(np.concatenate(found))
        self._places = pairs % size
        self._indptr = np.zeros(num_owned + 1, np.int64)
        np.cumsum(np.bincount(pairs // size, minlength=num_owned), out=self._indptr[1:])

    def leave_out(self, scores: torch.Tensor, rows: torch.Tensor) -> None:
        """Set the scores (R, M) of such candidates of own rows (R,) to minus infinity."""
        first = self._indptr[rows.numpy()]
        counts = self._indptr[rows.numpy() + 1] - first
        places = self._places[segments(first, counts)]
        scores[np.repeat(np.arange(len(rows)), counts), places] = -torch.inf


def pair_ranks(
    stream: Stream, h: torch.Tensor, rows_of_pool: torch.Tensor, known: Known, score: Scorer
) -> torch.Tensor:
    """float64 (m,): the ranks of the edges of a stream that end at own nodes. Collective.

    h: (n_p, F) own rows; rows_of_pool: (M, F); score: in float64.
    """
    pool, h = rows_of_pool.double(), in_rows(h)
    # One tensor: many small ones that stay would lie between what tiles take and give back, and keep it from the next.
    found, done = torch.empty(pairs_of(stream), dtype=torch.float64), 0
    edges = max(1, edge_tile_bytes() // (pool.element_size() * max(1, len(pool), h.shape[1])))
    for block, rows, _, _ in stream(Rows(h), "halo_forward"):
        for tile in edge_tiles(block, edges, None, None):
            targets = picked(h, tile.rows).double()
            scores = score.against(pool, targets).float()
            known.leave_out(scores, tile.rows)
            own = score(picked(rows, tile.sources).double(), targets[tile.segment]).float()[:, None]
            others = scores[tile.segment]
            found[done : done + len(own)] = 1 + (others > own).sum(1) + (others == own).sum(1).double() / 2
            done += len(own)
    return found


def pairs_of(stream: Stream) -> int:
    """How many edges of a stream end at own nodes."""
    return sum(block.num_edges for block in (stream.own, *stream.halo))
