"""One writer for one target: two imports of the same name would each work for hours, and the slower one silently win.

The right to write is a lock on a hidden file next to the target. The kernel takes the lock back from a killed process,
so nobody has to clean up by hand. The next writer, then alone, removes the half-written files of a killed one.
"""

import contextlib
import fcntl
import glob
import os
from collections.abc import Iterator
from pathlib import Path

from hpcgnn.errors import FormatError
from hpcgnn.records import hidden_name


@contextlib.contextmanager
def claimed(target: str | Path) -> Iterator[None]:
    """Hold the right to write `target`. FormatError if another has it."""
    target = Path(os.path.realpath(target))  # whichever link leads to it
    hidden = hidden_name(target)
    path = target.parent / f"{hidden}lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FormatError(f"cannot write {target}: {error.strerror}; choose a directory that is writable") from error
    try:
        _lock(lock, target)
        try:
            for left in target.parent.glob(f"{glob.escape(hidden)}*.part"):
                left.unlink()
            yield
        finally:
            # Removed while it is locked: whoever opened it meanwhile finds that it has lost its name.
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _lock(lock: int, target: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FormatError(
            f"{target} is being written by another process; wait for it, or choose another name"
        ) from error
    except OSError:  # a file system without locks
        return
    if os.fstat(lock).st_nlink == 0:
        raise FormatError(f"{target} was being written by another process until now; look at it, and start again")
