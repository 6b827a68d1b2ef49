"""A rank's activities over time, for a trace: named spans, recorded while the communicator has a tape.

The ledger counts and forgets times; a tape keeps times, for the few epochs under study. Recorders check `comm.tape`
first, which is None in all other epochs. Then nothing is recorded, and the check is the only cost, once for each turn
of a stream and each wait.

Spans belong to one thread, so they nest or follow each other. Their times are of this rank's clock; `offset_to_first`
finds the offset to rank 0's.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator

#: Spans that a rank keeps at the most, up to 1 KB each, and twice that while they are written.
MOST_SPANS = 100_000
_ROUNDS = 8

clock = time.perf_counter


class Tape:
    """Spans of this rank: [(name, category, begin, end, details)], in seconds of `clock`.

    Attributes:
        most: largest number of spans; later ones are only counted, in `lost`.
    """

    def __init__(self, most: int = MOST_SPANS) -> None:
        self.spans: list[tuple[str, str, float, float, dict[str, Any] | None]] = []
        self.lost, self._most = 0, most
        self.streams = 0  # of the present phase

    def add(self, name: str, category: str, begin: float, end: float, about: dict[str, Any] | None = None) -> None:
        """Record a span from `begin` to `end`."""
        if len(self.spans) < self._most:
            self.spans.append((name, category, begin, end, about))
        else:
            self.lost += 1

    @contextlib.contextmanager
    def span(self, name: str, category: str, about: dict[str, Any] | None = None) -> Iterator[None]:
        """The body is the span."""
        begin = clock()
        try:
            yield
        finally:
            self.add(name, category, begin, clock(), about)

    def begin_phase(self) -> None:
        """Streams are numbered from 1 in every phase."""
        self.streams = 0

    def begin_stream(self) -> int:
        """The number of the stream that begins."""
        self.streams += 1
        return self.streams


def offset_to_first(comm: Communicator, now: Callable[[], float] = clock) -> tuple[float, float]:
    """Find the offset of rank 0's clock. Collective.

    Each rank in turn asks for rank 0's time repeatedly. The quickest answer counts, and was right somewhere between
    question and answer (Cristian, 1989).

    Returns:
        (seconds to add to this rank's clock to get rank 0's, largest possible error).
    """
    word, best = torch.zeros(1, dtype=torch.float64), (0.0, float("inf"))
    for rank in range(1, comm.size):
        for _ in range(_ROUNDS):
            if comm.rank == 0:
                comm.exchange([], [(rank, word)], "control").finish()
                comm.exchange([(rank, word.fill_(now()))], [], "control").finish()
            elif comm.rank == rank:
                asked = now()
                comm.exchange([(0, word)], [], "control").finish()
                comm.exchange([], [(0, word)], "control").finish()
                answered = now()
                half = (answered - asked) / 2
                if half < best[1]:
                    best = float(word) - (asked + half), half
    return best if comm.rank else (0.0, 0.0)
