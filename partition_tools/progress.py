"""What a long run tells its user: bars on a terminal, plain lines in a log file, nothing when called from Python.

A bar in a batch log is thousands of lines of control characters; silence for an hour is no better. The three cases are
decided here once, so that the working code only says what it is doing.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from tqdm import tqdm


class Reporter:
    """Reports stages, progress and warnings on `stream`; Reporter() is silent. `warnings` keeps what was warned of."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream
        self.started = time.monotonic()
        self.warnings: list[str] = []

    def stage(self, text: str) -> None:
        """Name the step that begins now."""
        if self.stream is not None:
            print(f"[{time.monotonic() - self.started:7.1f} s] {text}", file=self.stream, flush=True)

    def warn(self, text: str) -> None:
        """Something that is allowed but probably not meant."""
        self.warnings.append(text)
        if self.stream is not None:
            print(f"partition_tools: warning: {text}", file=self.stream, flush=True)

    @contextlib.contextmanager
    def bar(self, total: int, text: str, unit: str = "rows") -> Iterator[Callable[[int], object]]:
        """Yield a function to call with the number of items just done."""
        if self.stream is not None and self.stream.isatty():
            with tqdm(total=total, desc=text, unit=unit, unit_scale=True, file=self.stream) as bar:
                yield bar.update
        else:
            self.stage(text)
            yield lambda count: None
