"""How a job ends after an error: one rank reports it for all ranks it happened to, and all leave.

A fault in a user's plugin happens on every rank at the same moment. If each rank printed its traceback, a different one
would be lost among a thousand equal ones. So a failed rank first announces its failure, and waits a moment for others.
Only the lowest failed rank prints its traceback, with the numbers of the others. Before MPI is started, ranks announce
failures by a first collective call (`meet`). Afterwards they use the watchdog's records (`comm/health/heartbeat.py`,
`comm/health/node_reports.py`), for healthy ranks may be anywhere.
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

# Launchers discard output that they have not forwarded when a rank aborts: the message must be out first.
_SECONDS_TO_BE_HEARD = 0.5
# Whoever is not the one that speaks leaves later than that one does.
_SECONDS_FOR_THE_SPEAKER = 4 * _SECONDS_TO_BE_HEARD


def meet(world: Any, failure: tuple[str, str] | None = None) -> None:
    """Make the first collective call of a started MPI. It ends the job after a failure on any rank, and returns
    otherwise.

    Args:
        world: mpi4py's communicator of all ranks.
        failure: None, or (the failure in a line, its traceback) on a rank that could not start.
    """
    from mpi4py import MPI

    if not world.allreduce(int(failure is not None), MPI.MAX):
        return
    lines = {rank: line for rank, line in enumerate(world.allgather(failure and failure[0])) if line is not None}
    end_before_start(world.rank, lines, failure, "MPI was started")


def end_before_start(rank: int, lines: Mapping[int, str], failure: tuple[str, str] | None, before: str) -> NoReturn:
    """End the job since some ranks could not start, which all ranks know. Does not return.

    Args:
        rank: this rank.
        lines: {rank: its failure in a line}.
        failure: as in `meet`.
        before: the stage that they did not reach, in words.
    """
    if failure is not None and rank == min(lines):
        say(f"hpcgnn: rank {rank} failed before {before}, and ends the job{others(rank, lines)}:\n{failure[1]}")
    else:
        time.sleep(_SECONDS_FOR_THE_SPEAKER)
    abort(1)


def others(speaker: int, lines: Mapping[int, str]) -> str:
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


def end_job(rank: int, watchdog: Watchdog | None, line: str, text: Callable[[str], str], code: int) -> NoReturn:
    """End the job because this rank failed. Does not return.

    Args:
        rank: this rank.
        watchdog: None if this rank is alone.
        line: short description, for comparison between ranks.
        text: text(others) returns the whole message; `others` describes the other failed ranks.
        code: exit code.
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

    The cause is at the other end. A failed rank reports itself, and its node's watchdog sees a killed one.

    Args:
        rank: this rank.
        watchdog: None if this rank is alone.
        text: message, printed only if neither reports in time.
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
