"""Seconds by phase of an epoch, on one rank."""

import contextlib
import time

PHASES = ("forward", "backward", "reduction", "step")


class Clock:
    """`with clock("forward"): …` adds wall seconds to a phase; `take()` returns {phase: seconds} and starts again."""

    def __init__(self):
        self._seconds = dict.fromkeys((*PHASES, "evaluation"), 0.0)

    @contextlib.contextmanager
    def __call__(self, phase):
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - start

    def take(self):
        seconds, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return seconds
