"""Random numbers that depend on their purpose and place, never on the rank or the time of the draw.

A draw is a pure function of (seed, epoch, layer, purpose, original node id, column): Philox4x32-10, a counter-based
generator (Salmon et al., SC'11). Masks are recomputed rather than stored. Two ranks know the same sample without
messages. The training curve does not depend on the number of ranks or on the partition.
"""

import contextlib
from collections.abc import Iterator, Sequence
from enum import IntEnum

import torch

from hpcgnn import kernels


class Purpose(IntEnum):
    """The purpose of a stream of draws. The values are part of a seed's meaning: append, never renumber."""

    PARAMETER = 1
    DROPOUT = 2
    DROPOUT_AGGREGATE = 3
    DROPOUT_ATTENTION = 4
    MESSAGE = 5
    ROUNDING = 6
    BOUNDARY = 7
    LEARNED_FEATURE = 8
    LINK_SPLIT = 9
    LINK_POOL = 10
    LINK_NEGATIVE = 11
    LINK_CANDIDATE = 12
    REUSED_LABEL = 13
    DROPPED_EDGE = 14
    SHARE = 15
    SHARE_ORDER = 16
    KEPT = 17
    LABEL_FOLD = 18
    HISTORY = 19


class Randomness:
    """All draws of a run. seed: any int. epoch: set by the training loop before each step."""

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch = seed, 0

    def key(self, purpose: Purpose, layer: int) -> int:
        """The 64-bit key of one stream of draws in the present epoch."""
        return kernels.stream_key(self.seed, self.epoch, layer, int(purpose))

    def uniform(self, shape: Sequence[int], index: int) -> torch.Tensor:
        """Numbers in [0, 1) for the initial value of parameter number `index`: float64 tensor; the same in every
        epoch.
        """
        key = kernels.stream_key(self.seed, 0, index, int(Purpose.PARAMETER))
        words = kernels.random_words(key, torch.arange(shape[0]), shape[1])
        return words.to(torch.float64) / 2.0**32


@contextlib.contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's own generator while the body runs, for layers that start as torch has them.

    The draws are the same on all ranks. The body sends nothing, since the generator belongs to the process.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes ms to tell all devices
        yield
