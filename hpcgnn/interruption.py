"""Ctrl-C while modules load ends a program in a line: libraries make tracebacks and other errors of the exception.

A program calls `end_at_once` before its other imports, and `end_in_order` when it has loaded them.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

from hpcgnn.comm.launcher import launch


class _End:
    """A handler of SIGINT."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        if launch().rank == 0:
            os.write(2, f"{self._program}: interrupted\n".encode())
        os._exit(130)


def end_at_once(program: str) -> None:
    """From now on Ctrl-C ends this process with code 130. Where it is ignored, as in background jobs, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _End(program))


def end_in_order() -> None:
    """From now on Ctrl-C is an exception again."""
    if isinstance(signal.getsignal(signal.SIGINT), _End):
        signal.signal(signal.SIGINT, signal.default_int_handler)
