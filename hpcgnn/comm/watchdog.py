"""Ends a job that stands still, and says which ranks did not arrive.

Launchers notice a process that ends, not one that stops: a rank that hangs in a file system, is suspended, or is lost
with its node makes all others wait, at full price, until the wall-time limit. A thread of each rank therefore looks at
the boards (`pulse.py`) every second. *If some rank waits and no rank at all has got on for so many seconds*, the job
stands still. That nobody gets on is the right question: a rank that still reads its share of the graph shows progress,
and those that wait for it wait in peace, however long it takes.

The thread calls no MPI, for MPI may be what hangs: it writes what it knows and every thread's stack, and leaves by
`os._exit` with a code other than 0, upon which the launcher ends the others. A process that ended without leaving in
order is noticed by the ranks of its node in seconds, where the launcher does not do it (srun without
--kill-on-bad-exit). Time in which this process itself was suspended does not count: a whole job may be suspended, and
go on.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn

from hpcgnn import cores
from hpcgnn.comm.pulse import Board, Line, Pulse, born, own_line

# sysexits.h calls it a temporary failure: starting again with --resume may well succeed.
EXIT_STALLED = 75
# A second is short against any limit; tests have short limits.
_SECONDS_BETWEEN_LOOKS = 1.0
# A rank is silent when its line has not changed for so many looks.
_SILENT_LOOKS = 4
# Launchers throw away what they have not passed on yet when a rank leaves with an error.
_SECONDS_TO_BE_HEARD = 1.0
# Whoever cannot see who is missing lets those speak first who may.
_SECONDS_FOR_OTHERS = 3.0
# What ranks say of themselves that have ended because others had.
LOST, ENDED = "lost a connection", "ended by the watchdog"
CONSEQUENCES = {LOST, ENDED}
# Ranks that fail alike do so at nearly the same time, unless they share cores.
_SECONDS_FOR_FAILURES = 1.0
_MOST_STACKS = 8


class Watchdog(threading.Thread):
    """Looks after a rank's Pulse. limit: seconds; node: of this node; several_nodes: whether there are more.

    A limit of 0 turns off the search for a standstill, not that for dead processes.
    """

    def __init__(
        self, rank: int, size: int, pulse: Pulse, limit: float, node: Board | None, several_nodes: bool = False
    ) -> None:
        super().__init__(name="hpcgnn-watchdog", daemon=True)
        self.rank, self.size, self.pulse, self.limit = rank, size, pulse, limit
        self.several_nodes = several_nodes
        self._node, self._last_job_look = node, 0.0
        self._job: Board | None = None
        self._pause = min(_SECONDS_BETWEEN_LOOKS, limit / 10) if limit else _SECONDS_BETWEEN_LOOKS
        self._end, self._beats, self._left = threading.Event(), 0, False
        self._idle, self._looked = 0.0, time.monotonic()
        self._lines: dict[int, Line] = {}
        self._changed: dict[int, int] = {}
        self._suspects: set[int] = set()
        self._show()  # at once: a rank may stop before the first look

    def share(self, path: Path) -> None:
        """Also show this rank's line in a file that ranks of other nodes can read, if it can be opened here."""
        self._job = Board.open(path, self.size)

    def run(self) -> None:
        cores.use_all()
        try:
            while not self._end.wait(self._pause):
                self._look()
        except BaseException:  # a guard that fell asleep is worse than a job that ended
            print(f"hpcgnn: the watchdog of rank {self.rank} failed:\n{traceback.format_exc()}", file=sys.stderr)
            self._exit()

    def gather_failures(self, line: str) -> dict[int, str]:
        """{rank: what went wrong there} of the ranks that are known to have failed a moment after this one did. line:
        what went wrong here. Ranks of other nodes are known once `share` was called."""
        self.pulse.failure = line
        mine = own_line(self.rank, self._beats, self.pulse, self._left)
        boards = [board for board in (self._node, self._job) if board is not None]
        for board in boards:
            board.write(mine)
        # Rank 0 waits less: if it has failed too, it speaks and ends the job before another thinks that it is the
        # lowest.
        time.sleep(_SECONDS_FOR_FAILURES * (1 if self.rank == 0 else 3))
        seen = {rank: other for board in boards for rank, other in board.read().items()}
        failed = {rank: other.failure for rank, other in seen.items() if other.failure}
        return failed | {self.rank: mine.failure}

    def wait_for_a_verdict(self) -> None:
        """Wait for the thread to end this process if a rank of this node has died: it names that rank."""
        for _ in range(20 if self._node is not None else 0):
            if self._node is not None and any(line.is_dead() for line in self._node.read().values()):
                time.sleep(4 * self._pause + _SECONDS_TO_BE_HEARD)
                return
            time.sleep(_SECONDS_FOR_FAILURES / 20)

    def finish(self) -> None:
        """This rank has ended in order."""
        self._left = True
        self._end.set()
        if self.is_alive():
            self.join()
        self._show()
        for board in (self._node, self._job):
            if board is not None:
                board.close()

    def _show(self) -> Line:
        self._beats += 1
        mine = own_line(self.rank, self._beats, self.pulse, self._left)
        for board in (self._node, self._job if self._job_is_due() else None):
            if board is not None:
                board.write(mine)
        return mine

    def _job_is_due(self) -> bool:
        """A file system that many share is asked less often."""
        now = time.monotonic()
        if self._job is None or now - self._last_job_look < 5 * self._pause:
            return False
        self._last_job_look = now
        return True

    def _look(self) -> None:
        now = time.monotonic()
        self._idle += min(now - self._looked, 2 * self._pause)
        self._looked = now
        mine, last_job_look = self._show(), self._last_job_look
        seen = {self.rank: mine}
        if self._job is not None and last_job_look >= now:
            seen = self._job.read() | seen
        if self._node is not None:
            near = self._node.read()
            self._end_if_dead(near)
            seen = seen | near
        for rank, line in seen.items():
            before = self._lines.get(rank)
            if before is None or line.count != before.count:
                self._idle = 0.0
            if before is None or line.beats > before.beats:
                self._lines[rank], self._changed[rank] = line, self._beats
        if self.limit and self._idle >= self.limit and any(line.waits for line in self._lines.values()):
            self._end_standstill()

    def _end_if_dead(self, near: Mapping[int, Line]) -> None:
        dead = {rank for rank, line in near.items() if line.is_dead()}
        certain, self._suspects = dead & self._suspects, dead
        if certain:
            said = {near[rank].failure for rank in certain}
            if "" not in said:  # they have said why, or know as little as this one
                self._exit(EXIT_STALLED if said <= CONSEQUENCES else 1)
            self._speak(
                f"hpcgnn: rank {_names(certain, self._lines)} of {self.size} has ended without finishing (killed from "
                "outside, or out of memory?); the job ends. Continue with --resume",
                min(set(near) - dead, default=self.rank),
            )

    def _is_silent(self, rank: int) -> bool:
        far = _SILENT_LOOKS * (5 if self._job is not None else 1)
        return self._beats - self._changed[rank] > far

    def _end_standstill(self) -> None:
        silent = {rank for rank in self._lines if self._is_silent(rank)}
        working = {rank for rank, line in self._lines.items() if not line.waits} - silent
        missing, arrived = silent | working, set(self._lines) - silent - working
        unseen = self.size - len(self._lines)
        if not missing and unseen:
            time.sleep(_SECONDS_FOR_OTHERS)
        parts = []
        if silent:
            parts.append(f"rank {_names(silent, self._lines)} shows no sign of life (stopped, or its node is lost)")
        parts += [f"rank {_names({rank}, self._lines)} works at something else" for rank in sorted(working)[:4]]
        if not missing and unseen:
            parts.append(f"a rank of another node, none of this one: of {unseen} ranks nothing is known here")
        elif not missing:
            parts.append("none: all wait, for different things, which is a fault of the program")
        places: dict[str, list[int]] = {}
        for rank in sorted(arrived):
            places.setdefault(self._lines[rank].at, []).append(rank)
        waiting = "; ".join(f"rank {_names(ranks, {})} for {at!r}" for at, ranks in places.items())
        self._speak(
            f"hpcgnn: no rank has got on for {self._idle:.0f} s (--watchdog {self.limit:g}); the job ends. Did not "
            f"arrive: {'; '.join(parts)}. Waiting: {waiting}. Continue with --resume",
            min(arrived, default=self.rank),
            arrived,
            silent,
        )

    def _speak(self, text: str, speaker: int, arrived: Collection[int] = (), silent: Collection[int] = ()) -> NoReturn:
        """One rank says what happened; some show their stacks; all leave. The silent ones of this node are killed: a
        process that is stopped obeys no launcher's request to end, and the launcher would wait for it.
        """
        if self.rank == speaker:
            print(text, file=sys.stderr, flush=True)
        if self.rank == speaker or self.rank in sorted(arrived)[:_MOST_STACKS] or self.rank not in arrived:
            print(f"hpcgnn: where rank {self.rank} stands:", file=sys.stderr, flush=True)
            faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        for line in [self._lines[rank] for rank in silent]:
            if line.host == socket.gethostname()[:48] and born(line.pid) == line.born:
                with contextlib.suppress(OSError):
                    os.kill(line.pid, signal.SIGKILL)
        self.pulse.failure = self.pulse.failure or ENDED  # for those of other nodes
        self._show()
        self._exit()

    def _exit(self, code: int = EXIT_STALLED) -> NoReturn:
        try:
            sys.stderr.flush()
            time.sleep(_SECONDS_TO_BE_HEARD)
        finally:
            os._exit(code)


def _names(ranks: Collection[int], lines: Mapping[int, Line]) -> str:
    """'0, 2 (node1, at "load")': the first few, with what is known of them."""
    named = []
    for rank in sorted(ranks)[:8]:
        line = lines.get(rank)
        named.append(str(rank) if line is None else f"{rank} ({line.host}, last at {line.at!r})")
    return ", ".join(named) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
