"""Wall seconds of an epoch by phase on one rank, with processor time and page faults of its training phases.

Ranks that share cores wait for each other: their wall time is unreliable, their processor time stays true. Page faults
are the price of fresh memory, which can be a third of an epoch. Others, such as the memory profile, can watch the
clock.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from hpcgnn.comm.heartbeat import Heartbeat

PHASES = ("forward", "backward", "reduction", "step")
COSTS = ("user_seconds", "system_seconds", "minor_faults")


# Takes the name of the phase that begins; returns the context manager to enter for it.
Watch = Callable[[str], AbstractContextManager[None]]


def combined(watches: Iterable[Watch]) -> Watch:
    """One watch for several, the first outermost."""
    watches = tuple(watches)
    if len(watches) < 2:
        return watches[0] if watches else unwatched

    @contextlib.contextmanager
    def watch(phase: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for each in watches:
                stack.enter_context(each(phase))
            yield

    return watch


def unwatched(phase: str) -> AbstractContextManager[None]:
    """The watch of those who need none: a context manager that does nothing."""
    return contextlib.nullcontext()


class Clock:
    """`with clock("forward"): …` adds wall seconds to a phase; `take()` returns {phase: seconds} and resets them.

    `take_costs()` does the same for {user_seconds, system_seconds, minor_faults} of all training phases together. They
    cover all threads of the process.

    Attributes:
        watch: called with the phase; returns a context manager around it, outside the timed interval.
        heartbeat: receives the phase, so that others can see the rank's position.
        total: {phase: seconds} since the clock was made.
    """

    def __init__(self, watch: Watch = unwatched, heartbeat: Heartbeat | None = None) -> None:
        self._watch, self._heartbeat = watch, heartbeat or Heartbeat()
        self._seconds = dict.fromkeys((*PHASES, "evaluation"), 0.0)
        self.total = dict(self._seconds)
        self._costs: dict[str, float] = dict.fromkeys(COSTS, 0)

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._heartbeat.at = phase
        self._heartbeat.beat()  # steps that send nothing are a way to get on, too
        with self._watch(phase):
            before, start = _costs(), time.perf_counter()
            try:
                yield
            finally:
                seconds = time.perf_counter() - start
                self._seconds[phase] += seconds
                self.total[phase] += seconds
                for name, now, then in zip(COSTS if phase in PHASES else (), _costs(), before, strict=False):
                    self._costs[name] += now - then

    def take(self) -> dict[str, float]:
        seconds, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return seconds

    def take_costs(self) -> dict[str, float]:
        costs, self._costs = self._costs, dict.fromkeys(self._costs, 0)
        return costs


def _costs() -> tuple[float, float, int]:
    """Where `COSTS` stand now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime, used.ru_minflt
