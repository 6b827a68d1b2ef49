"""Start and end of a parallel job: the one place where its transport is started, finished and aborted.

If one rank leaves and the others wait, the job burns node-hours until the wall-time limit. So every way out of `run`
either is taken by all ranks together or ends the whole job:

* a mistake of the user that all ranks know of (`Communicator.together`): one line from rank 0, orderly end, code 2;
* other errors on any rank, `SystemExit` included: rank, traceback, and an end for all (`ending.py`);
* Ctrl-C: one line, code 130 (a run in training stops in order instead: engine/stopping.py);
* a rank that stops, dies or never comes: the watchdog (`comm/health/watchdog.py`) ends the job;
* a code that all ranks return (a run that stopped early): rank 0 alone passes it on, and leaves last. Launchers kill
the remaining processes when the first one leaves with a code other than 0.
"""

import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from hpcgnn.comm.launch.ending import abort, end_job, end_lost, say
from hpcgnn.comm.launch.launcher import expected_ranks, launched_rank, local_rank
from hpcgnn.comm.session import WATCHDOG_SECONDS, Session, start
from hpcgnn.errors import HpcgnnError, LostConnection

EXIT_FAULT, EXIT_USER_ERROR, EXIT_INTERRUPTED = 1, 2, 130
_SECONDS_TO_LEAVE = 1.0


def _leave(code: int, rank: int) -> int:
    """Return the code of a job that ended in order, if it is not 0 then on rank 0 alone, after the others have left."""
    if code == 0 or rank != 0:
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_SECONDS_TO_LEAVE)
    return code


def fail_before_start(transport: str = "mpi") -> None:
    """End the whole job because this rank failed before its transport was started. Returns if this process is alone.

    It starts the transport to announce the failure, or the others would wait for this rank in their own start. Call it
    inside the exception handler.
    """
    if expected_ranks()[1] == 1:
        return
    failure = _in_a_line(sys.exception()), traceback.format_exc()
    try:
        start(transport, WATCHDOG_SECONDS, failure)
    except BaseException:
        say(f"hpcgnn: rank {launched_rank()} failed before the start, and ends the job:\n{failure[1]}")
        raise
    finally:  # where even that fails the others see to it themselves: their start has a limit
        abort(EXIT_FAULT)


def _in_a_line(error: BaseException | None) -> str:
    """Return an error as the last line of its traceback, for comparison between ranks."""
    return traceback.format_exception_only(error)[-1].strip()


def run(
    function: Callable[[Session], int | None],
    threads: int | None = None,
    without_mpi: Callable[[HpcgnnError], int] | None = None,
    watchdog: float = WATCHDOG_SECONDS,
    transport: str = "mpi",
) -> int:
    """Call `function(session)` on every rank inside a started transport and return the exit code. Collective.

    Args:
        function: returns an exit code or None, the same on all ranks.
        threads: threads per rank; None for the launcher's number.
        without_mpi: without_mpi(error) returns the exit code if the transport cannot start; called on the first rank of
            each node.
        watchdog: seconds after which a job that stands still is ended; 0 never.
        transport: a value of --comm.
    """
    session = None
    try:
        session = Session(threads, watchdog, transport)
        code = function(session) or 0
        rank = session.comm.rank
        session.finish()
        return _leave(code, rank)
    except BaseException as error:
        if session is None and without_mpi is not None and isinstance(error, HpcgnnError):
            return without_mpi(error) if local_rank() == 0 else EXIT_FAULT
        return end_with(session, error)


def end_with(session: Session | None, error: BaseException) -> int:
    """Take the way out that an exception asks for. session: of this rank, None where it has not started.

    Returns the exit code where all ranks leave in order, each by itself; everything else ends the job here. To be
    called where the exception is handled, and as the last thing: the session is over.
    """
    if session is None:
        rank, size = launched_rank(), expected_ranks()[1]
    else:
        rank, size = session.comm.rank, session.comm.size
    if isinstance(error, LostConnection):
        end_lost(
            rank,
            session.watchdog if session else None,
            f"hpcgnn: rank {rank} of {size} has lost another one, which has ended or whose node is gone ({error}); the "
            "job ends. Continue with --resume",
        )
    if isinstance(error, HpcgnnError):
        if error.everywhere or (session is not None and size == 1):
            if rank == 0:
                say(f"hpcgnn: error: {error}")
            return _leave(EXIT_USER_ERROR, rank) if session is None else _finished(session, EXIT_USER_ERROR)
        said, where = str(error), f" on rank {rank} of {size}" if session else ""
        _end(session, error, lambda others: f"hpcgnn: error{where}{others}: {said}", EXIT_USER_ERROR)
    if isinstance(error, KeyboardInterrupt):
        why = str(error) or "interrupted"
        if session is None:  # Ctrl-C reaches all ranks, and none of them can ask the others
            if launched_rank() == 0:
                say(f"hpcgnn: {why}")
            return EXIT_INTERRUPTED
        if size == 1:
            say(f"hpcgnn: {why}")
            session.finish()
            return EXIT_INTERRUPTED
        _end(session, error, lambda others: f"hpcgnn: {why}", EXIT_INTERRUPTED)
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else EXIT_FAULT
    trace = "".join(traceback.format_exception(error))
    _end(
        session,
        error,
        lambda others: f"hpcgnn: rank {rank} of {size} failed and ends the job{others}:\n{trace}",
        code,
    )


def _finished(session: Session, code: int) -> int:
    """End a session after a mistake that all ranks know of, and return the code of this rank."""
    rank = session.comm.rank
    try:
        session.finish()
    except BaseException:
        abort(EXIT_FAULT)
    return _leave(code, rank)


def _end(session: Session | None, error: BaseException, text: Callable[[str], str], code: int) -> NoReturn:
    """`end_job` for the rank and the watchdog of a session, or of a process that has none."""
    rank, watchdog = (session.comm.rank, session.watchdog) if session else (0, None)
    end_job(rank, watchdog, _in_a_line(error), text, code)
