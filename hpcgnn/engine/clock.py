"""Wall seconds of an epoch by phase on one rank, with processor time and page faults of its training phases.

Ranks that share cores wait for each other: their wall time is unreliable, their processor time stays true. Page faults
are the price of fresh memory, which can be a third of an epoch. Plugins, such as the memory profile, can watch the
clock.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from hpcgnn.comm.heartbeat import Heartbeat

Item = TypeVar("Item")
PHASES = ("forward", "backward", "reduction", "step")
COSTS = ("user_seconds", "system_seconds", "minor_faults")


# Takes the name of the phase that begins; returns the context manager to enter for it, outside of the timed interval.
Watch = Callable[[str], AbstractContextManager[None]]


def unwatched(phase: str) -> AbstractContextManager[None]:
    """The watch of those who need none: a context manager that does nothing."""
    return contextlib.nullcontext()


class Clock:
    """`with clock("forward"): …` adds wall seconds to a phase, and the processor time and page faults of all threads of
    the process to those of all training phases.

    Attributes:
        total: {phase: seconds} since the clock was made.
    """

    def __init__(self, watch: Watch, heartbeat: Heartbeat) -> None:
        """heartbeat: receives the phase, so that others can see the rank's position."""
        self._watch, self._heartbeat = watch, heartbeat
        self.total = dict.fromkeys((*PHASES, "evaluation"), 0.0)
        self._seconds, self._costs = dict(self.total), dict.fromkeys(COSTS, 0.0)

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._heartbeat.at = phase
        self._heartbeat.beat()  # steps that send nothing are a way to get on, too
        with self._watch(phase):
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            try:
                yield
            finally:
                seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
                self._seconds[phase] += seconds
                self.total[phase] += seconds
                if phase in PHASES:
                    self._costs["user_seconds"] += after.ru_utime - before.ru_utime
                    self._costs["system_seconds"] += after.ru_stime - before.ru_stime
                    self._costs["minor_faults"] += after.ru_minflt - before.ru_minflt

    def between(self, phase: str, items: Iterator[Item]) -> Iterator[Item]:
        """The items, as they come; a phase has the time that they take to come."""
        while True:
            with self(phase):
                item = next(items, None)
            if item is None:
                return
            yield item

    def take(self) -> tuple[dict[str, float], dict[str, float]]:
        """({phase: seconds}, {cost: amount}) since the last call."""
        taken = self._seconds, self._costs
        self._seconds, self._costs = dict.fromkeys(self._seconds, 0.0), dict.fromkeys(COSTS, 0.0)
        return taken
