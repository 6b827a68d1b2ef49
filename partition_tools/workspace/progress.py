"""Progress of a long run: bars on a terminal, now and then a line in a log, nothing from Python.

A bar in a batch log is thousands of lines of control characters; silence for an hour is no better. This module decides
between the three cases. The working code only names its stage.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TextIO

from tqdm import tqdm

from hpcgnn.terminal import tell

# In a log a long stage has such a line after so many seconds.
SECONDS, LINE = 30.0, "{l_bar}{n_fmt} of {total_fmt}, {remaining} left\n"


class _Bar(tqdm):  # type: ignore[misc]
    """Without a thread of its own: programs that have one should not fork."""

    monitor_interval = 0


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

        On a terminal a bar with an estimate of the time left. In a log the stage, and from time to time the bar as a
        line.
        """
        lines = self.stream is None or not self.stream.isatty()
        if lines:
            self.stage(text)
        often = {"mininterval": SECONDS, "delay": SECONDS, "ascii": True, "bar_format": LINE} if lines else {}
        silent = self.stream is None
        with _Bar(total=total, desc=text, unit=unit, unit_scale=True, file=self.stream, disable=silent, **often) as bar:
            yield bar.update


class ScriptReporter(Reporter):
    """For a program that gave no reporter: silent but for warnings, which are Python's."""

    def warn(self, text: str) -> None:
        """Something that is allowed but probably not meant."""
        super().warn(text)
        warnings.warn(text, UserWarning, stacklevel=5)
