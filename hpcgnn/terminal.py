"""Printing: a terminal or a pipe that fails never costs a finished job its exit code.

A terminal may know no box characters (Latin-1, ASCII). Whoever reads the pipe may have gone, and the disk under a log
may be full. Characters that the terminal lacks are shown as `?`, and files are written all the same.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from hpcgnn.errors import ConfigError


def prepare_streams() -> None:
    """Make standard output and standard error show `?` for a character that their encoding lacks.

    An error handler that the user has chosen stays. File descriptors that were closed are taken, so that no file of
    ours is opened under their number and written to by a library that prints.
    """
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:
        null = os.dup(null)
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            with contextlib.suppress(OSError, ValueError):  # one that cannot be written, which is found when it matters
                stream.reconfigure(errors="replace")


def check_directory() -> None:
    """ConfigError where the current directory was removed: libraries end the process for it, or fail anywhere."""
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError(f"the current directory is gone ({error.strerror}); change to another: cd ~") from error


def tell(text: str, stream: TextIO | None = None, needed: bool = False) -> None:
    """Print a text, now, on standard output or another stream. Where that cannot be, go on without it.

    needed: the text is all that a command is for; raise ConfigError where it cannot be written, except where its reader
    has gone.
    """
    stream = sys.stdout if stream is None else stream
    if stream is None:  # closed before Python began
        return
    try:
        try:
            print(text, file=stream, flush=True)
        except UnicodeEncodeError:  # a stream that is not prepared, such as a script's own
            print(text.encode(stream.encoding, "replace").decode(stream.encoding), file=stream, flush=True)
    except (OSError, ValueError) as error:
        _leave(stream)
        if isinstance(error, BrokenPipeError):
            return
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if needed:
            raise ConfigError(f"cannot print the result: {reason}; choose another place for standard output") from error
        if stream is not sys.stderr and sys.stderr is not None:
            tell(f"hpcgnn: warning: what was to be printed is lost: {reason}", sys.stderr)


def _leave(stream: TextIO) -> None:
    """Write nothing more to a stream: the rest of its buffer would fail again at the end of Python."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        number, null = stream.fileno(), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


@contextlib.contextmanager
def logged_from(level: int) -> Iterator[None]:
    """Log nothing below a level (of `logging`) in the body: a trial is not the run. A stricter level stays."""
    log = logging.getLogger("hpcgnn")
    before = log.level
    log.setLevel(max(before, level))
    try:
        yield
    finally:
        log.setLevel(before)
