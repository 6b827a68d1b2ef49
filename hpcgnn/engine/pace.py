"""Rank 0's progress lines for an unattended run: finished epochs, speed and remaining time.

The interval between lines is a quarter of the elapsed time, at least ten seconds and at most five minutes. So the first
minute of a run has many lines, and a day of it some three hundred.
"""

import time
from collections.abc import Callable
from typing import Any

from hpcgnn.records import shown_number

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

    def line(
        self, record: dict[str, Any], place: str, left: int, early: bool = False, last: bool = False
    ) -> str | None:
        """Return the line after an epoch, or None if it is too early for one.

        Args:
            record: the epoch's record, with the seconds of its training.
            place: the epoch in words.
            left: number of remaining epochs.
            early: whether the run may end before them.
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
        text = f"{place}  loss {record['loss']:.4f}  {self._metrics(done)}{self._training / epochs:.3g} s/epoch"
        if left and not last:
            text += f", {'at most ' if early else ''}about {duration(seconds * left)} left"
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
