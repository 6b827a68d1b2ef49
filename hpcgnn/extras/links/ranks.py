"""Scores of pairs of nodes: the ranks of held-out pairs, and the best targets of some sources.

The rank of a pair (i ← j) among a pool's nodes is 1, plus one for each candidate v of the pool with a higher score of
(v, i), plus half for each with the same score. Candidates with a known edge to i are left out, and so is i itself (the
filtered setting of Bordes et al., NIPS'13).

Ranks among given negatives are those of OGB's evaluators:

* Negatives that all edges share (ogbl-collab, -ppa, -ddi): an edge is a hit at K where it scores higher than the K-th
  best of all negatives. So its rank is 1 and one for each negative that scores as high or higher: an equal score is no
  hit.
* Negatives of each edge (ogbl-citation2): the rank is the mean of the best and the worst place that equal scores
  allow. It is 1, plus one for each negative that scores higher, plus half for each that scores the same.

No row of a negative is gathered anywhere: a negative is an edge like others, judged by the owner of its target.

The best targets are nodes whose pairs with the sources, a pool, have the highest scores over all ranks. Each rank goes
through its own nodes in tiles, and keeps the best few of each source. The ranks merge these for a part of the sources
each. Of equal scores the smaller id is better, so the result is the same for every number of ranks.

All scores are computed in float64 and compared in float32, so that equal rows tie whatever the order in which a product
was summed.
"""

from collections.abc import Iterable

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.exchange.stream import Stream, StreamInput
from hpcgnn.extras.links.given import to_owners
from hpcgnn.extras.links.loss import NodePool, places_in
from hpcgnn.extras.links.scorers import Dot
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.edge_tiles import edge_tiles
from hpcgnn.graph.local import Adjacency
from hpcgnn.graphfile.ranges import segments
from hpcgnn.ops.row_tiles import edge_tile_bytes, in_rows, picked


def with_ids(edges: Iterable[Adjacency], ids: torch.Tensor, comm: Communicator) -> list[tuple[Block, torch.Tensor]]:
    """(block, the original ids of its columns) of the in-edges of own nodes, whose own ids are given. Collective."""
    found = []
    for each in edges:
        others = gather_halo(each.plan, ids, comm)
        found.append((each.own, ids))
        found += [(block, others[block.first_column :]) for block in each.halo]
    return found


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


def pair_ranks(stream: Stream, h: torch.Tensor, rows_of_pool: torch.Tensor, known: Known, score: Dot) -> torch.Tensor:
    """float64 (m,): the ranks of the edges of a stream that end at own nodes. Collective.

    h: (n_p, F) own rows; rows_of_pool: (M, F); score: in float64.
    """
    pool, h = rows_of_pool.double(), in_rows(h)
    # One tensor: many small ones that stay would lie between what tiles take and give back, and keep it from the next.
    found, done = torch.empty(pairs_of(stream), dtype=torch.float64), 0
    edges = max(1, edge_tile_bytes() // (pool.element_size() * max(1, len(pool), h.shape[1])))
    for block, rows, *_ in stream(StreamInput(h), "halo_forward"):
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


# Edges whose scores all ranks have at a time.
_PIECE = 1 << 18
#: The numbers of pairs, int64 (m,), and their scores, float32 (m,).
Scored = tuple[torch.Tensor, torch.Tensor]


def pair_scores(stream: Stream, h: torch.Tensor, score: Dot) -> Scored:
    """The scores of the pairs of a stream that end at own nodes, by their numbers in `Block.edge`. Collective.

    h: (n_p, F) own rows; score: in float64.
    """
    numbers, h = [torch.zeros(0, dtype=torch.int64)], in_rows(h)
    scores, done = torch.empty(pairs_of(stream)), 0
    edges = max(1, edge_tile_bytes() // (16 * max(1, h.shape[1])))
    for block, rows, *_ in stream(StreamInput(h), "halo_forward"):
        for tile in edge_tiles(block, edges, None, None):
            ends = picked(rows, tile.sources), picked(h, tile.owner)
            scores[done : done + len(ends[0])] = score(*(end.double() for end in ends)).float()
            done += len(ends[0])
        assert block.edge is not None, "pairs are numbered"
        numbers.append(block.edge)
    order = torch.argsort(number := torch.cat(numbers))
    return number[order], scores[order]


def ranks_among_all(scores: torch.Tensor, negatives: torch.Tensor, most: int, comm: Communicator) -> torch.Tensor:
    """float64 (m,): the ranks of own edges among the negatives of all ranks; those beyond `most` are most + 1.
    Collective.

    scores, negatives: float32 (m,), (k_p,), of own pairs.
    """
    mine = torch.topk(negatives, min(most, len(negatives))).values.tolist()
    best = torch.tensor([score for part in comm.allgather_object(mine) for score in part], dtype=torch.float32)
    best = best.sort().values[-most:]
    return 1 + (len(best) - torch.searchsorted(best, scores)).double()


def ranks_among_own(pairs: Scored, negatives: Scored, count: int, comm: Communicator) -> torch.Tensor:
    """float64 (m,): the ranks of own edges, each among the negatives that have its number. Collective.

    pairs, negatives: of own targets; count: of the edges of all ranks, which have the numbers from 0.
    """
    (numbers, scores), (their, against) = pairs, negatives
    found = [torch.zeros(0, dtype=torch.float64)]
    for first in range(0, count, _PIECE):
        bounds = torch.tensor([first, min(first + _PIECE, count)])
        own, there = (slice(*torch.searchsorted(each, bounds).tolist()) for each in (numbers, their))
        size, place, which = int(bounds[1]) - first, numbers[own] - first, their[there] - first
        everyones = torch.zeros(size)
        everyones[place] = scores[own]
        comm.allreduce_(everyones, "halo_forward")
        than, each = everyones[which], against[there]
        counts = [torch.bincount(which[beaten], minlength=size) for beaten in (each > than, each == than)]
        higher, equal = comm.allreduce_(torch.stack(counts), "halo_forward")[:, place]
        found.append(1 + higher + equal.double() / 2)
    return torch.cat(found)


#: Sources int64 (m,), their targets int64 (m,) and the scores float32 (m,): by source, the best first.
Best = tuple[np.ndarray, np.ndarray, np.ndarray]


def best_targets(
    pool: NodePool, h: torch.Tensor, ids: torch.Tensor, known: Known, score: Dot, most: int, comm: Communicator
) -> Best:
    """The `most` best targets of each node of the pool, on rank 0; nothing on other ranks. Collective.

    h: (n_p, F) own rows; ids: int64 (n_p,), their original ids. known: targets that are left out. score: in float64.
    """
    sources, h = pool.gathered(h, comm, "evaluation").double(), in_rows(h)
    best: Best = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    step = max(1, edge_tile_bytes() // (8 * max(1, len(sources), h.shape[1])))
    for start in range(0, len(h), step):
        rows = torch.arange(start, min(start + step, len(h)))
        scores = score.against(sources, h[start : start + step].double()).float()
        known.leave_out(scores, rows)
        least = scores.topk(min(most, len(rows)), 0).values[-1]
        row, column = torch.nonzero((scores >= least) & (scores > -torch.inf), as_tuple=True)
        found = column.numpy(), ids[start + row].numpy(), scores[row, column].numpy()
        place, target, number = (np.concatenate(both) for both in zip(best, found, strict=True))
        best = _first(place, target, number, most)
    for part in (comm.size, 1):  # merged by all ranks, each for its part of the sources, then brought to rank 0
        sent = np.stack(best, 1, dtype=np.float64)
        place, target, number = to_owners(sent, best[0] * part // max(1, len(sources)), comm).T
        best = _first(place.astype(np.int64), target.astype(np.int64), number.astype(np.float32), most)
    return pool.ids.numpy()[best[0]], best[1], best[2]


def _first(place: np.ndarray, target: np.ndarray, score: np.ndarray, most: int) -> Best:
    """The best `most` of each place, by place."""
    order = np.lexsort((target, -score, place))
    place = place[order]
    first = np.searchsorted(place, place)
    kept = np.arange(len(place)) - first < most
    return place[kept], target[order][kept], score[order][kept]
