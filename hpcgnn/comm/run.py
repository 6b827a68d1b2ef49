"""Start and end of a parallel job: the one place where its transport is started, finished and aborted.

If one rank leaves and the others wait, the job burns node-hours until the wall-time limit. So every way out of `run`
either is taken by all ranks together or ends the whole job:

* a mistake of the user that all ranks know of (`Communicator.together`): one line from rank 0, orderly end, code 2;
* other errors on any rank, `SystemExit` included: rank, traceback, and an end for all;
* Ctrl-C: one line, code 130 (a run in training stops in order instead: engine/stopping.py);
* a rank that stops, dies or never comes: the watchdog (`comm/watchdog.py`) ends the job;
* a code that all ranks return (a run that stopped early): rank 0 alone passes it on, and leaves last. Launchers kill
the remaining processes when the first one leaves with a code other than 0.

One rank reports an error for all ranks it happened to. A fault in a user's plugin happens on every rank at the same
moment. If each rank printed its traceback, a different one would be lost among a thousand equal ones. So a failed rank
first announces its failure, and waits a moment for others. Only the lowest failed rank prints its traceback, with the
numbers of the others. Before the transport is started, ranks announce failures when they meet (`end_if_failed`).
Afterwards they use the watchdog's records (`comm/heartbeat.py`), for healthy ranks may be anywhere.
"""

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from hpcgnn.comm.launcher import launch
from hpcgnn.comm.session import WATCHDOG_SECONDS, Session, start
from hpcgnn.comm.watchdog import CONSEQUENCES, EXIT_STALLED, LOST, Watchdog
from hpcgnn.errors import HpcgnnError, LostConnection
from hpcgnn.word_list import ranges

EXIT_FAULT, EXIT_USER_ERROR, EXIT_INTERRUPTED = 1, 2, 130
_SECONDS_TO_LEAVE = 1.0
# Launchers discard output that they have not forwarded when a rank aborts: the message must be out first.
_SECONDS_TO_BE_HEARD = 0.5
# Whoever is not the one that speaks leaves later than that one does.
_SECONDS_FOR_THE_SPEAKER = 4 * _SECONDS_TO_BE_HEARD


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
        session.finish()
        return _leave(code, session.comm.rank)
    except BaseException as error:
        if session is None and without_mpi is not None and isinstance(error, HpcgnnError):
            return without_mpi(error) if launch().local_rank == 0 else EXIT_FAULT
        return end_with(session, error)


def fail_before_start(transport: str = "mpi") -> None:
    """End the whole job because this rank failed before its transport was started. Returns if this process is alone.

    It starts the transport to announce the failure, or the others would wait for this rank in their own start. Call it
    inside the exception handler.
    """
    if launch().size == 1:
        return
    failure = _in_a_line(sys.exception()), traceback.format_exc()
    try:
        start(transport, WATCHDOG_SECONDS, failure)
    except BaseException:
        say(f"hpcgnn: rank {launch().rank} failed before the start, and ends the job:\n{failure[1]}")
        raise
    finally:  # where even that fails the others see to it themselves: their start has a limit
        abort(EXIT_FAULT)


def end_with(session: Session | None, error: BaseException) -> int:
    """Take the way out that an exception asks for. session: of this rank, None where it has not started.

    Returns the exit code where all ranks leave in order, each by itself; everything else ends the job here. To be
    called where the exception is handled, and as the last thing: the session is over.
    """
    here, watchdog = (launch(), None) if session is None else (session.comm, session.watchdog)
    rank, size = here.rank, here.size
    if isinstance(error, LostConnection):
        lost = (
            f"hpcgnn: rank {rank} of {size} has lost another one, which has ended or whose node is gone ({error}); the "
            "job ends. Continue with --resume"
        )
        _end_job(rank, watchdog, LOST, lambda others: lost, EXIT_STALLED)
    line = _in_a_line(error)
    if isinstance(error, HpcgnnError):
        if error.everywhere or (session is not None and size == 1):
            return _end_together(session, rank, f"hpcgnn: error: {error}", EXIT_USER_ERROR)
        where = f" on rank {rank} of {size}" if session else ""
        _end_job(rank, watchdog, line, lambda others: f"hpcgnn: error{where}{others}: {error}", EXIT_USER_ERROR)
    if isinstance(error, KeyboardInterrupt):
        why = f"hpcgnn: {str(error) or 'interrupted'}"
        if session is None or size == 1:  # Ctrl-C reaches all ranks, and none of them can ask the others
            return _end_together(session, rank, why, EXIT_INTERRUPTED)
        _end_job(rank, watchdog, line, lambda others: why, EXIT_INTERRUPTED)
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else EXIT_FAULT
    trace, what = "".join(traceback.format_exception(error)), f"rank {rank} of {size} failed and ends the job"
    _end_job(rank, watchdog, line, lambda others: f"hpcgnn: {what}{others}:\n{trace}", code)


def end_if_failed(rank: int, told: Sequence[str | None], failure: tuple[str, str] | None) -> None:
    """End the job if some ranks could not start, which all ranks know when they have met. Otherwise return.

    Args:
        rank: this rank.
        told: the failure of each rank in a line, or None.
        failure: None, or (this rank's failure in a line, its traceback).
    """
    lines = {other: line for other, line in enumerate(told) if line is not None}
    if not lines:
        return
    if failure is not None and rank == min(lines):
        say(f"hpcgnn: rank {rank} failed before the start, and ends the job{_others(rank, lines)}:\n{failure[1]}")
    else:
        time.sleep(_SECONDS_FOR_THE_SPEAKER)
    abort(EXIT_FAULT)


def _leave(code: int, rank: int) -> int:
    """Return the code of a job that ended in order, if it is not 0 then on rank 0 alone, after the others have left."""
    if code == 0 or rank != 0:
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_SECONDS_TO_LEAVE)
    return code


def _end_together(session: Session | None, rank: int, text: str, code: int) -> int:
    """End in order for a reason that all ranks know of, and return the code of this rank."""
    if rank == 0:
        say(text)
    try:
        if session is not None:
            session.finish()
    except BaseException:
        abort(EXIT_FAULT)
    return _leave(code, rank)


def _in_a_line(error: BaseException | None) -> str:
    """Return an error as the last line of its traceback, for comparison between ranks."""
    return traceback.format_exception_only(error)[-1].strip()


def _others(speaker: int, lines: Mapping[int, str]) -> str:
    """Describe the other failed ranks: ' (ranks 1 to 7 alike; rank 9: KeyError: 'x')'.

    Args:
        speaker: the reporting rank.
        lines: {rank: its failure in a line}.
    """
    alike = [rank for rank in sorted(lines) if rank != speaker and lines[rank] == lines[speaker]]
    parts = [f"rank{'s' if len(alike) > 1 else ''} {ranges(alike)} alike"] if alike else []
    different = [rank for rank in sorted(lines) if lines[rank] != lines[speaker]]
    parts += [f"rank {rank}: {lines[rank]}" for rank in different[:4]]
    parts += [f"{len(different) - 4} more otherwise"] if len(different) > 4 else []
    return f" ({'; '.join(parts)})" if parts else ""


def _end_job(rank: int, watchdog: Watchdog | None, line: str, text: Callable[[str], str], code: int) -> NoReturn:
    """End the job because this rank failed. Does not return.

    The cause of a lost connection is at the other end. A failed rank reports itself, and its node's watchdog sees a
    killed one.

    Args:
        rank: this rank.
        watchdog: None if this rank is alone.
        line: short description, for comparison between ranks.
        text: text(others) returns the whole message; `others` describes the other failed ranks.
        code: exit code.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient Ctrl-C would take the reason away
        lines = {rank: line}
        if watchdog is not None:
            if line == LOST:
                watchdog.wait_for_a_verdict()
            lines = watchdog.gather_failures(line)
        causes = [failed for failed, each in lines.items() if each not in CONSEQUENCES]
        if line == LOST and causes:
            code = EXIT_FAULT  # as of any fault: srun reports the highest code of all ranks
        if rank == min(causes or lines):
            say(text(_others(rank, lines)))
        if rank != min(lines) or line == LOST:
            time.sleep(_SECONDS_FOR_THE_SPEAKER)
    finally:  # out of memory, or standard error is gone: the job must end all the same
        abort(code)


def say(text: str) -> None:
    """Print on standard error, now, if anybody is there to read it."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def abort(code: int) -> NoReturn:
    """End all ranks of the job with this code, whatever they do. Does not return."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_SECONDS_TO_BE_HEARD)
        MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)  # whoever did not load it must not do so now
        if MPI is not None and MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.COMM_WORLD.Abort(code)
    finally:
        os._exit(code)
