"""A rank's activities over time, for a trace: named spans, recorded while the communicator has a tape.

The ledger counts and forgets times; a tape keeps times, for the few epochs under study. Recorders check `comm.tape`
first, which is None in all other epochs. Then nothing is recorded, and the check is the only cost, once for each turn
of a stream and each wait.

Spans belong to one thread, so they nest or follow each other. Their times are of this rank's clock.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

#: Spans that a rank keeps at the most, up to 1 KB each, and twice that while they are written.
MOST_SPANS = 100_000

clock = time.perf_counter


class SpanRecorder:
    """Spans of this rank: [(name, category, begin, end, details)], in seconds of `clock`.

    Attributes:
        most: largest number of spans; later ones are only counted, in `lost`.
    """

    def __init__(self, most: int = MOST_SPANS) -> None:
        self.spans: list[tuple[str, str, float, float, dict[str, Any] | None]] = []
        self.lost, self._most = 0, most

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
