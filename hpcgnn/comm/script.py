"""The session of a script: it begins in the middle of the user's program, and ends with the program.

`run.run` surrounds a job; Python alone surrounds a script. So its ways out are caught where Python catches them. An
uncaught exception reaches `sys.excepthook`, and ends the job as in `hpcgnn train`. The end of the script, and
`sys.exit`, reach `atexit`, where the ranks wait for each other. The watchdog finds a rank that leaves while others wait
elsewhere, because the final meeting uses messages of its own kind.
"""

import atexit
import sys
import traceback
from collections.abc import Callable
from types import TracebackType

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.run import EXIT_FAULT, abort, end_with
from hpcgnn.comm.session import Session
from hpcgnn.errors import HpcgnnError

_END = "the end of the script"
# The session of this process: at most one, for MPI can be started once.
_running: list[Session] = []
_hooks: list[Callable[..., object]] = []


def end_like_a_job() -> None:
    """From now on an exception that nobody catches ends this process, and the job, as it does in `run.run`."""
    if sys.excepthook is not _end:
        _hooks.append(sys.excepthook)
        sys.excepthook = _end


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if hasattr(sys, "ps1"):  # an interactive prompt: an error does not end the session
        _hooks[-1](kind, error, trace)
        return
    if not _running and isinstance(error, HpcgnnError):
        error.everywhere = True  # found by all ranks, before they are connected
    # Not os._exit: some MPI libraries have things to do after the interpreter, and launchers miss them.
    raise SystemExit(end_with(_running.pop() if _running else None, error.with_traceback(trace)))


def session_of_script(threads: int | None, watchdog: float) -> Session:
    """Return the session of this process. The first call starts it, and is collective; later calls return the same one.

    Args:
        threads: threads per rank; None for the launcher's number.
        watchdog: patience of the watchdog in seconds.

    Raises:
        ConfigError: MPI cannot be started.
    """
    end_like_a_job()
    if not _running:
        _running.append(Session(threads, watchdog))
        atexit.register(_finish)
    return _running[0]


def _finish() -> None:
    """End the session where the script ends. Collective."""
    if not _running:
        return
    try:
        session = _running.pop()
        _meet(session.comm)
        session.finish()
    except BaseException:
        traceback.print_exc()
        abort(EXIT_FAULT)


def _meet(comm: Communicator) -> None:
    """Return when all ranks have come here: by messages, for a collective call could meet another one elsewhere."""
    others = [0] if comm.rank else range(1, comm.size)
    messages = [(rank, torch.zeros(1)) for rank in others]
    for outgoing, incoming in [(messages, []), ([], messages)] if comm.rank else [([], messages), (messages, [])]:
        comm.exchange(outgoing, incoming, _END).finish()
