"""A sample of the halo: some of the rows, in the rounds of all of them, known to both ends without a word.

A boundary node is in the sample of an ordered pair of ranks or not by a draw that follows from the pair and the node's
original id, which both ranks have. So the owner packs what the other expects, and neither ids nor counts are sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import Segment
from hpcgnn.graph.blocks import Block, sampled


@dataclass(frozen=True)
class SampledPlan(HaloPlan):
    """A HaloPlan of some rows of another. receive_rows, send_rows and starts are those of the sample; rounds are the
    other plan's, whose positions receive_at and send_at give: for each ring offset an increasing int64 array.
    """

    receive_at: list[np.ndarray]
    send_at: list[np.ndarray]

    def received(self, segment: Segment) -> int:
        """How many rows of a segment this rank receives."""
        first, last = np.searchsorted(self.receive_at[segment.offset - 1], (segment.start, segment.stop))
        return int(last - first)

    def sent(self, segment: Segment) -> torch.Tensor:
        """The own rows of a segment that this rank sends: int32 (m,)."""
        first, last = np.searchsorted(self.send_at[segment.offset - 1], (segment.start, segment.stop))
        return self.send_rows[segment.offset - 1][first:last]


def drawn(ids: torch.Tensor, key: int, rate: float) -> torch.Tensor:
    """bool (m,): which of the nodes with these original ids are drawn with probability `rate`."""
    return kernels.random_words(key, ids, 1)[:, 0] < round(rate * 2**32)


def sample_plan(
    plan: HaloPlan, ids: torch.Tensor, halo_ids: torch.Tensor, key: int, rate: float
) -> tuple[SampledPlan, torch.Tensor]:
    """(the sample, bool (num_halo,): which rows of the halo are in it). Not collective.

    ids: int64 (n_p,) original ids of own nodes; halo_ids: of the halo. key: of this sample, the same on all ranks.
    """
    keep_in: list[torch.Tensor] = []
    keep_out: list[torch.Tensor] = []
    first = 0
    for offset, (rows, send_rows) in enumerate(zip(plan.receive_rows, plan.send_rows), start=1):
        theirs = kernels.stream_key(key, plan.source(offset), plan.rank)
        ours = kernels.stream_key(key, plan.rank, plan.dest(offset))
        keep_in.append(drawn(halo_ids[first : first + rows], theirs, rate))
        keep_out.append(drawn(ids[send_rows], ours, rate))
        first += rows
    made = SampledPlan(
        plan.rank,
        plan.size,
        [int(kept.sum()) for kept in keep_in],
        [rows[kept] for rows, kept in zip(plan.send_rows, keep_out)],
        plan.rounds,
        np.zeros(len(plan.rounds) + 1, np.int64),
        [np.flatnonzero(kept.numpy()) for kept in keep_in],
        [np.flatnonzero(kept.numpy()) for kept in keep_out],
    )
    starts = np.cumsum([0, *(sum(made.received(segment) for segment in round_) for round_ in plan.rounds)])
    return replace(made, starts=starts), torch.cat(keep_in) if keep_in else torch.zeros(0, dtype=torch.bool)


def sample_blocks(blocks: Sequence[Block], plan: HaloPlan, sample: SampledPlan, kept: torch.Tensor) -> list[Block]:
    """The blocks of a SampledPlan from those of its plan. kept: bool (num_halo,), as `sample_plan` gives it."""
    return [
        sampled(block, kept[first:last], int(start))
        for block, first, last, start in zip(blocks, plan.starts[:-1], plan.starts[1:], sample.starts)
    ]
