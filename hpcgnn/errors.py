"""Errors with the facts that a user needs: the expected value, the value found, and the remedy.

Every error that a user can cause derives from `HpcgnnError` and is shown as one line without a traceback.
Anything else that escapes is a fault of this program and keeps its traceback.
"""

import errno
import re
from typing import Self


class HpcgnnError(ValueError):
    """A mistake in options or data; the message has the expected value, the value found and the remedy.

    everywhere: whether all ranks raise it, so that the job can end in order.
    """

    everywhere: bool = False

    @classmethod
    def on_all(cls, text: str) -> Self:
        """The error of a mistake that all ranks find alike, each by itself."""
        error = cls(text)
        error.everywhere = True
        return error


class ConfigError(HpcgnnError):
    """An option or configuration key that does not exist, or a value outside its range."""


class FormatError(HpcgnnError):
    """A file of a wrong kind or state: foreign, truncated, corrupted, or of an unknown version."""


class AccessError(HpcgnnError):
    """A file that may be sound, and cannot be opened now: another program writes it, or a permission is missing."""


class GraphError(HpcgnnError):
    """A readable graph whose contents cannot be trained on: labels outside the classes, NaN features, no map."""


class CheckpointError(HpcgnnError):
    """A checkpoint that cannot be read, or that belongs to another model or graph."""


class RunDirError(HpcgnnError):
    """A run directory that exists, or that cannot be written."""


class TrainingError(HpcgnnError):
    """Training that went wrong on good input: a loss that is not finite."""


class RemoteError(HpcgnnError):
    """Raised on the ranks that were well when another rank failed in a step that all take together. of: the type of
    that rank's error.
    """

    of: type[HpcgnnError] = HpcgnnError


class LostConnection(HpcgnnError):
    """The rank at the other end of a message is gone, or the network between."""


class MemoryShortage(HpcgnnError):
    """This rank's memory is used up."""


_SHORT_OF_MEMORY = re.compile(
    "can't allocate memory|cannot allocate memory|not enough memory|bad_alloc|out of memory|memory allocation failed|"
    r"size calculation overflowed with sizes=\[[\d, ]*\]",  # not of negative sizes, which are a fault of the program
    re.IGNORECASE,
)


def memory_shortage(error: BaseException) -> MemoryShortage | None:
    """A MemoryShortage with the bytes of the request if `error` is one of memory, else None.

    Python, numpy, torch and the system have different errors for this.
    """
    text = " ".join(str(error).split())
    short = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not short and not (isinstance(error, (OSError, RuntimeError)) and _SHORT_OF_MEMORY.search(text)):
        return None
    amount = re.search(r"(?:allocate:?|asked for) ([\d.]+ (?:[KMGTPE]?i?B|bytes))", text)
    wanted = f"{amount[1]} more were asked for" if amount else "more was asked for than there is"
    return MemoryShortage(f"out of memory: {wanted}")
