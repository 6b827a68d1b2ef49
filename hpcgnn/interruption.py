"""Ctrl-C while modules load ends a program in a line: libraries make tracebacks and other errors of the exception.

A program calls `end_at_once` before its other imports, and `end_in_order` when it has loaded them.
"""

import functools
import os
import signal
from types import FrameType
from typing import NoReturn

from hpcgnn.comm.launcher import launch


def _end(program: str, number: int, frame: FrameType | None) -> NoReturn:
    """A handler of SIGINT."""
    if launch().rank == 0:
        os.write(2, f"{program}: interrupted\n".encode())
    os._exit(130)


def end_at_once(program: str) -> None:
    """From now on Ctrl-C ends this process with code 130. Where it is ignored, as in background jobs, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, functools.partial(_end, program))


def end_in_order() -> None:
    """From now on Ctrl-C is an exception again."""
    if isinstance(signal.getsignal(signal.SIGINT), functools.partial):
        signal.signal(signal.SIGINT, signal.default_int_handler)
