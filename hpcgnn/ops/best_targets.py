"""The best targets of some sources: the nodes whose pairs with them have the highest scores, over all ranks.

The sources are a pool, whose rows every rank has. Each rank goes through its own nodes in tiles, and keeps the best few
of each source. These are merged by the ranks for a part of the sources each. Of equal scores the smaller id is better,
so the result is the same for every number of ranks. Scores are as in pair_ranks.py.
"""

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.graph.given_pairs import to_owners
from hpcgnn.ops.node_pool import NodePool
from hpcgnn.ops.pair_ranks import Known, Scorer
from hpcgnn.ops.row_tiles import edge_tile_bytes, in_rows

#: Sources int64 (m,), their targets int64 (m,) and the scores float32 (m,): by source, the best first.
Best = tuple[np.ndarray, np.ndarray, np.ndarray]


def best_targets(
    pool: NodePool, h: torch.Tensor, ids: torch.Tensor, known: Known, score: Scorer, most: int, comm: Communicator
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
