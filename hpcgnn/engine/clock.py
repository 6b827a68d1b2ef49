"""Wall seconds of an epoch by phase on one rank, with processor time and page faults of its training phases.

Ranks that share cores wait for each other: their wall time is unreliable, their processor time stays true. Page faults
are the price of fresh memory, which can be a third of an epoch. Plugins, such as the memory profile, can watch the
clock.

Rank 0's progress lines show finished epochs, speed and remaining time. The interval between them is a quarter of the
elapsed time, at least ten seconds and at most five minutes.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.records import shown_number

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


_SHORTEST, _LONGEST, _PART = 10.0, 300.0, 0.25
_METRICS = ("train", "val", "test")


class Pace:
    """Makes the lines. begun: epochs done before; clock: seconds."""

    def __init__(self, begun: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = self._told_at = clock()
        self._told, self._due, self._first = begun, 0.0, True
        self._scores: dict[str, float | None] = {}
        self._scored, self._training = 0, 0.0

    def line(self, record: dict[str, Any], left: int, last: bool = False) -> str | None:
        """Return the line after an epoch, or None if it is too early for one.

        Args:
            record: the epoch's record, with the seconds of its training.
            left: number of remaining epochs.
            last: whether no line follows.
        """
        done, now = record["epoch"], self._clock()
        self._training += record["seconds"]["epoch"]["max"]
        if "val" in record:
            self._scores, self._scored = {name: record[name] for name in _METRICS}, done
        if not (self._first or last or now >= self._due):
            return None
        epochs = max(1, done - self._told)
        seconds = (now - self._told_at) / epochs  # with evaluation and checkpoints
        text = f"epoch {done}/{done + left}  loss {record['loss']:.4f}  {self._metrics(done)}"
        text += f"{self._training / epochs:.3g} s/epoch"
        if left and not last:
            text += f", about {duration(seconds * left)} left"
            self._due = now + min(_LONGEST, max(_SHORTEST, _PART * (now - self._start), seconds))
        self._told_at, self._told, self._first, self._training = now, done, False, 0.0
        return text

    def _metrics(self, done: int) -> str:
        if not self._scores:
            return ""
        when = "" if self._scored == done else f" (of epoch {self._scored})"
        return "  ".join(f"{name} {shown_number(value)}" for name, value in self._scores.items()) + f"{when}  "


def duration(seconds: float) -> str:
    """A time in words, of two figures."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            amount = seconds / size
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
