"""How a job ends when something goes wrong: one rank says what happened, for all that it happened to, and all leave.

A fault in a user's plugin happens on every rank at the same moment. Each rank prints its traceback, a thousand times
the same text, and the one that differs is lost among them. So a rank that fails says so to the others first, waits a
moment for them to do the same, and only the lowest of those that failed prints its traceback, with the numbers of the
others. Before MPI is started the ranks tell each other by a first collective call (`meet`), afterwards by what the
watchdog shows (`comm/health/heartbeat.py`, `comm/health/node_reports.py`), for the ranks that are well may be anywhere.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from hpcgnn.comm.health.watchdog import CONSEQUENCES, EXIT_STALLED, LOST, Watchdog
from hpcgnn.comm.launch.pmi import Pmi
from hpcgnn.listing import ranges

# Launchers throw away what they have not passed on yet when a rank aborts: the message must be out first.
_SECONDS_TO_BE_HEARD = 0.5
# Whoever is not the one that speaks leaves later than that one does.
_SECONDS_FOR_THE_SPEAKER = 4 * _SECONDS_TO_BE_HEARD


def meet(world: Any, failure: tuple[str, str] | None = None) -> None:
    """The first collective call of a started MPI. It ends the job if it was told of a failure on any rank.

    world: mpi4py's communicator of all ranks. failure: None, or (what happened in a line, its traceback) on a rank that
    could not start. Returns if all are well.
    """
    from mpi4py import MPI

    if not world.allreduce(int(failure is not None), MPI.MAX):
        return
    lines = {rank: line for rank, line in enumerate(world.allgather(failure and failure[0])) if line is not None}
    end_before_start(world.rank, lines, failure, "MPI was started")


def end_before_start(rank: int, lines: Mapping[int, str], failure: tuple[str, str] | None, before: str) -> NoReturn:
    """End the job since some ranks could not start, of which all ranks know. Does not return.

    lines: {rank: what happened there in a line}; failure: as for `meet`; before: what they failed before, in words.
    """
    if failure is not None and rank == min(lines):
        say(f"hpcgnn: rank {rank} failed before {before}, and ends the job{others(rank, lines)}:\n{failure[1]}")
    else:
        time.sleep(_SECONDS_FOR_THE_SPEAKER)
    abort(1)


def others(speaker: int, lines: Mapping[int, str]) -> str:
    """Who else failed, in words: ' (ranks 1 to 7 alike; rank 9: KeyError: 'x')'. lines: {rank: what happened in a
    line}.
    """
    alike = [rank for rank in sorted(lines) if rank != speaker and lines[rank] == lines[speaker]]
    parts = [f"rank{'s' if len(alike) > 1 else ''} {ranges(alike)} alike"] if alike else []
    different = [rank for rank in sorted(lines) if lines[rank] != lines[speaker]]
    parts += [f"rank {rank}: {lines[rank]}" for rank in different[:4]]
    parts += [f"{len(different) - 4} more otherwise"] if len(different) > 4 else []
    return f" ({'; '.join(parts)})" if parts else ""


def end_job(rank: int, watchdog: Watchdog | None, line: str, text: Callable[[str], str], code: int) -> NoReturn:
    """End the job because this rank failed. Does not return.

    line: what happened, short, so that ranks can be compared; text(others) -> the whole message, where `others` says
    who else failed. watchdog: None where this rank is alone.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient Ctrl-C would take the reason away
        lines = {rank: line} if watchdog is None else watchdog.gather_failures(line)
        if rank == min(lines):
            say(text(others(rank, lines)))
        else:
            time.sleep(_SECONDS_FOR_THE_SPEAKER)
    finally:  # out of memory, or standard error is gone: the job must end all the same
        abort(code)


def end_lost(rank: int, watchdog: Watchdog | None, text: str) -> NoReturn:
    """End the job because a connection to another rank broke. Does not return.

    That is a consequence: the rank at the other end has ended. If it failed it says so itself, and if it was killed
    the watchdog of its node sees it; `text` is said only where neither speaks in time.
    """
    code = EXIT_STALLED
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if watchdog is not None:
            watchdog.wait_for_a_verdict()
        lines = {} if watchdog is None else watchdog.gather_failures(LOST)
        if not CONSEQUENCES.issuperset(lines.values()):
            code = 1  # as of any fault: srun reports the highest code of all ranks
        elif rank == min(lines, default=rank):
            say(text)
        time.sleep(_SECONDS_FOR_THE_SPEAKER)
    finally:
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
        if Pmi.opened is not None:
            Pmi.opened.abort(code)
    finally:
        os._exit(code)
