"""A sample of the halo: some of the rows, in the rounds of all of them, known to both ends without messages.

A draw decides whether a boundary node is in the sample of an ordered pair of ranks. It follows from the pair and the
node's original id, which both ranks have. So the owner packs the expected rows, and neither ids nor counts are sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.exchange.plan import HaloPlan, parts
from hpcgnn.exchange.rounds import Segment
from hpcgnn.exchange.sending import Sending
from hpcgnn.graph.blocks import Block, sampled


@dataclass(frozen=True)
class SampledPlan(HaloPlan):
    """A HaloPlan of some rows of another. The counts, sent rows and starts are of the sample, the rounds of the other.

    receive_at, send_at: {ring offset: increasing int64 positions in the other}.
    """

    receive_at: dict[int, np.ndarray]
    send_at: dict[int, np.ndarray]

    def received(self, segment: Segment) -> int:
        """How many rows of a segment this rank receives."""
        first, last = _between(self.receive_at, segment)
        return last - first

    def sent(self, segment: Segment) -> tuple[int, int]:
        """(the first, one past the last) of the rows of a segment among all that this rank sends."""
        begin, _ = self._sent_to(segment.offset)
        first, last = _between(self.send_at, segment)
        return begin + first, begin + last


def _between(places: dict[int, np.ndarray], segment: Segment) -> tuple[int, int]:
    """Which of a segment's rows are in the sample: the first, and one past the last."""
    if segment.offset not in places:
        return 0, 0
    first, last = np.searchsorted(places[segment.offset], (segment.start, segment.stop))
    return int(first), int(last)


def drawn(ids: torch.Tensor, key: int, rate: float) -> torch.Tensor:
    """bool (m,): which of the nodes with these original ids are drawn with probability `rate`."""
    return kernels.random_words(key, ids, 1)[:, 0] < round(rate * 2**32)


def sample_plan(
    plan: HaloPlan, ids: torch.Tensor, halo_ids: torch.Tensor, key: int, rate: float
) -> tuple[SampledPlan, torch.Tensor]:
    """(the sample, bool (num_halo,): which rows of the halo are in it). Not collective.

    ids: int64 (n_p,) original ids of own nodes; halo_ids: of the halo. key: of this sample, the same on all ranks.
    """

    def drawn_of(
        counts: np.ndarray, ids: torch.Tensor, ends: Callable[[int], tuple[int, int]]
    ) -> tuple[torch.Tensor, np.ndarray, dict[int, np.ndarray]]:
        """(bool (len(ids),): which are sampled; how many of each offset; their places). ends(k): (source, dest)."""
        kept, left, at = torch.zeros(len(ids), dtype=torch.bool), np.zeros_like(counts), dict[int, np.ndarray]()
        for offset, first, size in parts(counts):
            part = slice(first, first + size)
            kept[part] = drawn(ids[part], kernels.stream_key(key, *ends(offset)), rate)
            at[offset] = np.flatnonzero(kept[part].numpy())
            left[offset - 1] = len(at[offset])
        return kept, left, at

    keep_in, receive_counts, receive_at = drawn_of(plan.receive_counts, halo_ids, lambda k: (plan.source(k), plan.rank))
    keep_out, send_counts, send_at = drawn_of(
        plan.send_counts, ids[plan.send_rows], lambda k: (plan.rank, plan.dest(k))
    )
    made = SampledPlan(
        plan.peers,
        receive_counts,
        send_counts,
        Sending(plan.send_rows[keep_out]),
        plan.rounds,
        plan.sizes,
        np.zeros(len(plan.rounds) + 1, np.int64),
        plan.cap,
        None,
        receive_at,
        send_at,
    )
    starts = np.cumsum([0, *(sum(made.received(segment) for segment in round_) for round_ in plan.rounds)])
    return replace(made, starts=starts), keep_in


def sample_blocks(blocks: Sequence[Block], plan: HaloPlan, sample: SampledPlan, kept: torch.Tensor) -> list[Block]:
    """The blocks of a SampledPlan from its plan's blocks. kept: bool (num_halo,), as `sample_plan` gives it."""
    return [
        sampled(block, kept[first:last], int(start))
        for block, first, last, start in zip(blocks, plan.starts[:-1], plan.starts[1:], sample.starts, strict=False)
    ]
