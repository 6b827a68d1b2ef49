"""The costs of a run's epochs on one rank, part by part: the sums behind the loss report (report/losses.py).

A part is a phase of the clock, the evaluation, the writing of checkpoints, or the time between them (the loss over
ranks, the records). Each part has three times: its length, the wait for other ranks, and idle time without such a wait.
In idle time another process had the core, or the rank waited for a file.

The first epoch of a process allocates lasting memory and differs from all others. It counts only if there is no second.
"""

import contextlib
import resource
import time
from collections.abc import Iterator

from hpcgnn.comm.ledger import Ledger

#: The summed quantities, in the order of a reading.
SUMS = (
    *("seconds", "waiting_seconds", "main_thread_seconds", "waiting_on_core_seconds"),
    *("user_seconds", "system_seconds", "minor_faults", "exchanges"),
)
Reading = tuple[float, ...]
BETWEEN = "between"


class Tally:
    """{part: {sum: number}} of this rank, of some epochs. ledger: of its waits and exchanges."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger()
        self.first = self.last = self._begun = 0
        self._parts: dict[str, dict[str, float]] = {}

    def read(self) -> Reading:
        """Where all that is summed stands now."""
        ledger, used = self._ledger, resource.getrusage(resource.RUSAGE_SELF)
        return (
            *(time.perf_counter(), ledger.seconds_waited, time.thread_time(), ledger.seconds_waited_on_core),
            *(used.ru_utime, used.ru_stime, used.ru_minflt, ledger.exchanges),
        )

    def book(self, part: str, before: Reading) -> dict[str, float]:
        """Add the costs since a reading to a part, and return them."""
        spent = {name: now - then for name, now, then in zip(SUMS, self.read(), before, strict=True)}
        sums = self._parts.setdefault(part, dict.fromkeys(SUMS, 0.0))
        for name, value in spent.items():
            sums[name] += value
        return spent

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The body is of this part."""
        before = self.read()
        try:
            yield
        finally:
            self.book(name, before)

    @contextlib.contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """Run epoch `number`, counted from 1, as the body; time outside of all other parts counts as `between`."""
        self._begun += 1
        if self._begun <= 2:
            self.first, self._parts = number, {}
        others = self._sums()
        before = self.read()
        yield
        spent = self.book(BETWEEN, before)
        between = self._parts[BETWEEN]
        for name, value in self._sums().items():
            between[name] -= value - others[name] - spent[name]
        self.last = number

    def _sums(self) -> dict[str, float]:
        """Of all parts together."""
        return {name: sum(part[name] for part in self._parts.values()) for name in SUMS}

    def record(self) -> dict[str, object]:
        """{'epochs': [first, last], 'parts': {part: {seconds, waiting_seconds, off_core_seconds, system_seconds,
        minor_faults, exchanges}}}.
        """
        return {"epochs": [self.first, self.last], "parts": {part: _told(sums) for part, sums in self._parts.items()}}


def _told(sums: dict[str, float]) -> dict[str, float]:
    """Return the reported form of a part's sums."""
    seconds, waiting = sums["seconds"], sums["waiting_seconds"]
    ran = sums["main_thread_seconds"] - sums["waiting_on_core_seconds"]
    return {
        "seconds": seconds,
        "waiting_seconds": waiting,
        "off_core_seconds": max(0.0, seconds - waiting - ran),
        "processor_seconds": sums["user_seconds"] + sums["system_seconds"],
        "system_seconds": sums["system_seconds"],
        "minor_faults": int(sums["minor_faults"]),
        "exchanges": int(sums["exchanges"]),
    }
