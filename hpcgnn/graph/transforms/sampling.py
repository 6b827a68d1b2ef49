"""A sample of the halo: some of the rows, in the rounds of all of them, known to both ends without messages.

A draw decides whether a boundary node is in the sample of an ordered pair of ranks. It follows from the pair and the
node's original id, which both ranks have. So the owner packs the expected rows, and neither ids nor counts are sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.exchange.plan import HaloPlan, of_offsets, parts
from hpcgnn.exchange.rounds import Segment
from hpcgnn.exchange.send_matrix import SendMatrix
from hpcgnn.graph.blocks import Block, sampled


@dataclass(frozen=True)
class SampledPlan(HaloPlan):
    """A HaloPlan of some rows of another. The counts, sent rows and starts are of the sample, the rounds of the other.

    whole: the other plan. received_before, sent_before: int64, rows of the sample before each of its halo and sent
    rows.
    """

    whole: HaloPlan
    received_before: np.ndarray
    sent_before: np.ndarray

    def arriving(self, segments: Sequence[Segment]) -> tuple[np.ndarray, np.ndarray]:
        """See HaloPlan."""
        first, last = self.whole.arriving(segments)
        return self.received_before[first], self.received_before[last]

    def sent(self, segments: Sequence[Segment]) -> tuple[np.ndarray, np.ndarray]:
        """See HaloPlan."""
        first, last = self.whole.sent(segments)
        return self.sent_before[first], self.sent_before[last]


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
    ) -> tuple[torch.Tensor, np.ndarray]:
        """(bool (m,): which are sampled; int64 (m + 1,): how many before each). ends(k): (source, dest)."""
        kept = torch.zeros(len(ids), dtype=torch.bool)
        for offset, first, size in parts(counts):
            part = slice(first, first + size)
            kept[part] = drawn(ids[part], kernels.stream_key(key, *ends(offset)), rate)
        return kept, np.append(0, np.cumsum(kept.numpy()))

    peers = plan.peers
    keep_in, before_in = drawn_of(plan.receive_counts, halo_ids, lambda k: (peers.source(k), peers.number))
    keep_out, before_out = drawn_of(plan.send_counts, ids[plan.send_rows], lambda k: (peers.number, peers.dest(k)))
    sample = SampledPlan(
        peers,
        of_offsets(plan.receive_counts, keep_in.numpy()),
        of_offsets(plan.send_counts, keep_out.numpy()),
        SendMatrix(plan.send_rows[keep_out]),
        plan.rounds,
        plan.sizes,
        before_in[plan.starts],
        plan.cap,
        None,
        plan,
        before_in,
        before_out,
    )
    return sample, keep_in


def sample_blocks(blocks: Sequence[Block], plan: HaloPlan, sample: SampledPlan, kept: torch.Tensor) -> list[Block]:
    """The blocks of a SampledPlan from its plan's blocks. kept: bool (num_halo,), as `sample_plan` gives it."""
    return [
        sampled(block, kept[first:last], int(start))
        for block, first, last, start in zip(blocks, plan.starts[:-1], plan.starts[1:], sample.starts, strict=False)
    ]
