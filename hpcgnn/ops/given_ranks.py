"""The ranks of held-out edges' scores among the scores of given negatives, as OGB's evaluators have it.

* Negatives that all edges share (ogbl-collab, -ppa, -ddi): an edge is a hit at K where it scores higher than the K-th
  best of all negatives. So its rank is 1 and one for each negative that scores as high or higher: an equal score is no
  hit.
* Negatives of each edge (ogbl-citation2): the rank is the mean of the best and the worst place that equal scores
  allow. It is 1, plus one for each negative that scores higher, plus half for each that scores the same.

No row of a negative is gathered anywhere: a negative is an edge like others, judged by the owner of its target. Scores
are computed in float64 and compared in float32, as in pair_ranks.py.
"""

import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.graph.edge_tiles import edge_tiles
from hpcgnn.ops.pair_ranks import Scorer, pairs_of
from hpcgnn.ops.row_tiles import edge_tile_bytes, in_rows
from hpcgnn.ops.tile_rows import picked

# Edges whose scores all ranks have at a time.
_PIECE = 1 << 18
#: The numbers of pairs, int64 (m,), and their scores, float32 (m,).
Scored = tuple[torch.Tensor, torch.Tensor]


def pair_scores(stream: Stream, h: torch.Tensor, score: Scorer) -> Scored:
    """The scores of the pairs of a stream that end at own nodes, and their numbers in `Block.edge`. Collective.

    h: (n_p, F) own rows; score: in float64.
    """
    numbers, h = [torch.zeros(0, dtype=torch.int64)], in_rows(h)
    scores, done = torch.empty(pairs_of(stream)), 0
    edges = max(1, edge_tile_bytes() // (16 * max(1, h.shape[1])))
    for block, rows, _, _ in stream(Rows(h), "halo_forward"):
        for tile in edge_tiles(block, edges, None, None):
            ends = picked(rows, tile.sources), picked(h, tile.owner.int())
            scores[done : done + len(ends[0])] = score(*(end.double() for end in ends)).float()
            done += len(ends[0])
        assert block.edge is not None, "pairs are numbered"
        numbers.append(block.edge)
    return torch.cat(numbers), scores


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
    numbers, scores = _in_order(pairs)
    their, against = _in_order(negatives)
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


def _in_order(scored: Scored) -> Scored:
    order = torch.argsort(scored[0])
    return scored[0][order], scored[1][order]
