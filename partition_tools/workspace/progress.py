"""Progress of a long run: bars on a terminal, now and then a line in a log, nothing from Python.

A bar in a batch log is thousands of lines of control characters; silence for an hour is no better. This module decides
between the three cases. The working code only names its stage.
"""

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TextIO

from tqdm import tqdm

from hpcgnn.terminal import tell

# In a log a long stage says how far it is after so many seconds, and after such a part of its work, whichever is later.
SECONDS, PART = 30.0, 0.1


class Reporter:
    """Reports stages, progress and warnings on `stream`; Reporter() is silent. `warnings` keeps the warnings."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream
        self.started = time.monotonic()
        self.warnings: list[str] = []

    def stage(self, text: str) -> None:
        """Name the step that begins now."""
        if self.stream is not None:
            tell(f"[{time.monotonic() - self.started:7.1f} s] {text}", self.stream)

    def warn(self, text: str) -> None:
        """Something that is allowed but probably not meant."""
        self.warnings.append(text)
        if self.stream is not None:
            tell(f"partition_tools: warning: {text}", self.stream)

    @contextlib.contextmanager
    def bar(self, total: int, text: str, unit: str = "rows") -> Iterator[Callable[[int], object]]:
        """Yield a function to call with the number of items just done, from any thread. total: of all items.

        On a terminal a bar with an estimate of the time left. In a log the stage, and from time to time a line with the
        same estimate.
        """
        if self.stream is not None and self.stream.isatty():
            with tqdm(total=total, desc=text, unit=unit, unit_scale=True, file=self.stream) as bar:
                yield bar.update
        else:
            self.stage(text)
            yield _Lines(self, total, text).update


class ScriptReporter(Reporter):
    """For a program that gave no reporter: silent but for warnings, which are Python's."""

    def warn(self, text: str) -> None:
        """Something that is allowed but probably not meant."""
        super().warn(text)
        warnings.warn(text, UserWarning, stacklevel=5)


class _Lines:
    """Progress of one stage as lines of a log."""

    def __init__(self, reporter: Reporter, total: int, text: str) -> None:
        self.reporter, self.total, self.text = reporter, total, text
        self.done, self.said = 0, 0
        self.begun = self.last = time.monotonic()
        self.lock = threading.Lock()

    def update(self, count: int) -> None:
        with self.lock:
            self.done += count
            now = time.monotonic()
            if now - self.last < SECONDS or self.done - self.said < PART * self.total or self.done >= self.total:
                return
            left = (now - self.begun) / self.done * (self.total - self.done)
            self.reporter.stage(f"{self.text}: {self.done / self.total:.0%}, about {spoken(left)} left")
            self.last, self.said = now, self.done


def spoken(seconds: float) -> str:
    """A duration in the unit that suits it: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
