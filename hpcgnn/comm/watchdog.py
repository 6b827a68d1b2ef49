"""Ends a job that stands still, and names the ranks that did not arrive.

Launchers notice a process that ends, not one that stops. A rank may hang in a file system, be suspended, or be lost
with its node. All others then wait, at full price, until the wall-time limit. So a thread of each rank looks at the
board of its node (`heartbeat.py`) every second. *If some rank waits and no rank at all makes progress for the limit's
seconds*, the job stands still. A rank that still reads its share of the graph shows progress, and others may wait for
it however long it takes.

Every rank writes its own record and compares those on its node. One rank of the node, the first with a heartbeat, does
the rest. It asks the kernel about processes whose records no longer change, and writes its node's file for other nodes.
It reads theirs when its own node makes no progress. If it stops or dies, the next one takes over.

The thread calls no MPI, for MPI may be what hangs. It writes its findings and some stacks, and leaves by
`os._exit` with a code other than 0. The launcher then ends the others. A node notices within seconds a process that
ended without leaving in order, if the launcher does not (srun without --kill-on-bad-exit). Time in which this process
itself was suspended does not count: a whole job may be suspended, and go on.
"""

import contextlib
import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

import numpy as np

from hpcgnn import cores
from hpcgnn.comm.heartbeat import Heartbeat, HeartbeatBoard, NodeReports, NodeSummary, RankState

# sysexits.h calls it a temporary failure: starting again with --resume may well succeed.
EXIT_STALLED = 75
# A second is short against any limit; tests have short limits.
_SECONDS_BETWEEN_LOOKS = 1.0
# A rank is silent after these looks without a change of its record, a node after these reports without a change.
_SILENT_LOOKS, _SILENT_REPORTS = 4, 3
_SECONDS_BETWEEN_REPORTS = 10.0
# Other nodes are looked at when nobody here has got on for this part of the limit.
_FIRST_READ = 0.05
# Launchers discard output that they have not forwarded when a rank leaves with an error.
_SECONDS_TO_BE_HEARD = 1.0
# Whoever cannot see who is missing lets those speak first who may.
_SECONDS_FOR_OTHERS = 3.0
# The `failure` of a rank that ended because others had.
LOST, ENDED = "lost a connection", "ended by the watchdog"
CONSEQUENCES = {LOST, ENDED}
# Ranks that fail alike do so at nearly the same time, unless they share cores.
_SECONDS_FOR_FAILURES = 1.0
_MOST_NAMES = 8


class Watchdog(threading.Thread):
    """Looks after a rank's Heartbeat. limit: seconds; board: of this node, None where there is none.

    A limit of 0 turns off the search for a standstill, not that for dead processes.
    """

    def __init__(
        self, rank: int, size: int, heartbeat: Heartbeat, limit: float, board: HeartbeatBoard | None = None
    ) -> None:
        super().__init__(name="hpcgnn-watchdog", daemon=True)
        self.rank, self.size, self.heartbeat, self.limit = rank, size, heartbeat, limit
        self._board = board or HeartbeatBoard.alone()
        self._pause = min(_SECONDS_BETWEEN_LOOKS, limit / 10) if limit else _SECONDS_BETWEEN_LOOKS
        self._interval = min(_SECONDS_BETWEEN_REPORTS, limit / 8) if limit else _SECONDS_BETWEEN_REPORTS
        self._end, self._own_looks, self._left = threading.Event(), 0, False
        # Of the node's ranks, by place: what was seen last, and looks of this rank since a record has changed.
        self._counts, self._looks, self._unchanged = np.zeros((3, self._board.places), np.int64)
        self._dead = np.zeros(self._board.places, bool)
        # Seconds in which this process ran: all of them, those since a rank of the node got on.
        self._clock, self._idle, self._looked = 0.0, 0.0, time.monotonic()
        self._reports: NodeReports | None = None
        self._folder: Path | None = None
        self._next_report = 0.0
        self._nodes: dict[str, tuple[NodeSummary, float]] = {}  # (the latest, when it was first seen)
        self._show()  # at once: a rank may stop before the first look

    def share(self, folder: Path, meet: Callable[[], None]) -> None:
        """Also write this node's state to a file of this folder, which other nodes can read. Collective.

        Args:
            folder: which `finish` removes.
            meet: returns when all ranks have called it.
        """
        if self.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)  # of a job that was ended
            with contextlib.suppress(OSError):
                folder.mkdir()
            self._folder = folder
        meet()
        reports = NodeReports(folder, int(self._board.records["rank"][0]))
        with contextlib.suppress(OSError):
            if self._board.place == 0:
                reports.create()
            self._reports = reports

    def run(self) -> None:
        cores.use_all()
        try:
            while not self._end.wait(self._pause):
                self._look()
        except BaseException:  # a guard that fell asleep is worse than a job that ended
            print(f"hpcgnn: the watchdog of rank {self.rank} failed:\n{traceback.format_exc()}", file=sys.stderr)
            self._exit()

    def gather_failures(self, line: str) -> dict[int, str]:
        """Return {rank: its failure} of the ranks that have failed by a moment after this one.

        After `share`, the lowest failed rank of a node also knows those of other nodes. The other ranks learn of a
        lower one, which is enough to leave the report to it.

        Args:
            line: this rank's failure.
        """
        self.heartbeat.failure = line
        self._board.write(self.rank, self._own_looks, self.heartbeat, self._left)
        # Rank 0 waits less: if it has failed too, it speaks and ends the job before another thinks that it is the
        # lowest.
        seconds = _SECONDS_FOR_FAILURES * (1 if self.rank == 0 else 3)
        failed = {self.rank: line}
        for part in (1 / 4, 3 / 4):
            time.sleep(part * seconds)
            failed |= {state.rank: state.failure for state in self._board.states().values() if state.failure}
            if self.rank == min(failed):
                self._report()
        if self.rank == min(failed) and self._reports is not None:
            told = [state for ranks in self._reports.ranks().values() for state in ranks]
            failed |= {state.rank: state.failure for state in told if state.failure}
        return failed

    def wait_for_a_verdict(self) -> None:
        """Wait for the thread to end this process if a rank of this node has died: one of them names that rank."""
        for _ in range(20 if self._board.places > 1 else 0):
            records = self._board.records
            present = np.flatnonzero((records["looks"] > 0) & ~records["left"])
            if self._board.ending() or any(self._board.is_gone(place) for place in present.tolist()):
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
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _show(self) -> None:
        self._own_looks += 1
        self._board.write(self.rank, self._own_looks, self.heartbeat, self._left)

    def _look(self) -> None:
        now = time.monotonic()
        passed = min(now - self._looked, 2 * self._pause)
        self._looked = now
        self._clock += passed
        self._show()
        ending = self._board.ending()
        if ending is not None:
            self._follow(*ending)
        counts, looks = self._board.records["count"].copy(), self._board.records["looks"].copy()
        self._idle = self._idle + passed if np.array_equal(counts, self._counts) else 0.0
        self._unchanged = np.where(looks == self._looks, self._unchanged + 1, 0)
        self._counts, self._looks = counts, looks
        if self._leads():
            self._exchange_reports()
            self._end_if_still(self._job_idle())

    def _silent(self) -> np.ndarray:
        """Which ranks have written, and then no more: bool (places,)."""
        return (self._looks > 0) & (self._unchanged > _SILENT_LOOKS)

    def _leads(self) -> bool:
        """Whether this rank looks after its node, whose dead end the job: the first that shows life and has not left.

        The others look after the one that does. They may see another one for a moment.
        """
        while True:
            present = (self._looks > 0) & ~self._board.records["left"] & ~self._dead
            able = present & ~self._silent()
            leader = int(able.argmax()) if able.any() else self._board.place
            mine = leader == self._board.place
            asked = np.flatnonzero(present & (self._unchanged > 0)).tolist()
            dead = [place for place in asked if (mine or place == leader) and self._board.is_gone(place)]
            self._dead[dead] = True
            if mine and self._dead.any():
                self._end_dead(np.flatnonzero(self._dead).tolist())
            if mine or not dead:
                return mine

    def _report(self, ended: bool = False) -> None:
        """Write this node's file anew. A file system that is full or gone is no evidence about the ranks."""
        if self._reports is not None:
            with contextlib.suppress(OSError):
                waiting = int(self._board.records["waits"].sum())
                idle = round(self._idle, 1), round(self._job_idle(), 1)
                self._reports.write(
                    NodeSummary(self._own_looks, *idle, waiting, ended), self._board.states(self._silent())
                )

    def _exchange_reports(self) -> None:
        """Write this node's file, and read those of others while no rank of this one gets on."""
        if self._reports is None or self._clock < self._next_report:
            return
        self._next_report = self._clock + self._interval
        self._report()
        if self.limit and self._idle >= _FIRST_READ * self.limit:
            first = self._reports.FIRST
            asks_first = self._reports.name != first and not (first in self._nodes and self._is_lost(first))
            for name, summary in self._reports.summaries(asks_first).items():
                if name not in self._nodes or self._nodes[name][0].looks != summary.looks:
                    self._nodes[name] = summary, self._clock

    def _job_idle(self) -> float:
        """Seconds in which no rank has got on, of this node or of another one that can be seen.

        Rank 0's node reads the files of all. If it is lost, its last file is no evidence about the others.
        """
        idle = self._idle
        for name, (summary, since) in self._nodes.items():
            for_all = name == NodeReports.FIRST and not self._is_lost(name)
            idle = min(idle, (summary.job_idle if for_all else summary.idle) + self._clock - since)
        return idle

    def _is_lost(self, name: str) -> bool:
        return self._clock - self._nodes[name][1] > _SILENT_REPORTS * self._interval

    def _end_if_still(self, idle: float) -> None:
        """End the job if it stands still, and it is for this node to say so. idle: seconds of the job."""
        summaries = [summary for summary, _ in self._nodes.values()]
        waiting = self._board.records["waits"].any() or any(summary.waiting for summary in summaries)
        if not self.limit or idle < self.limit or not waiting:
            return
        if any(summary.ended for summary in summaries):
            self._finish_off("")
        states = self._all_states()
        # The first node that shows life prints the message; among nodes that see no other, one that sees more.
        sees_who = len(states) == self.size or any(state.silent or not state.waits for state in states.values())
        patience = 0.0 if sees_who else _SECONDS_FOR_OTHERS
        if self._reports is not None and any(
            name < self._reports.name and not self._is_lost(name) for name in self._nodes
        ):
            patience = 2 * self._interval + _SECONDS_FOR_OTHERS
        if idle >= self.limit + patience:
            self._finish_off(describe_standstill(states, self.size, idle, self.limit))

    def _all_states(self) -> dict[int, RankState]:
        """{rank: RankState} of all visible ranks."""
        states = {state.rank: state for state in self._board.states(self._silent()).values()}
        for name, ranks in self._reports.ranks().items() if self._reports is not None else ():
            lost = name in self._nodes and self._is_lost(name)
            states |= {state.rank: state._replace(silent=state.silent or lost) for state in ranks}
        return states

    def _end_dead(self, dead: Collection[int]) -> NoReturn:
        states = self._board.states()
        reasons = {states[place].failure for place in dead}
        if "" not in reasons:  # the dead ranks have printed the reason, or did not know it either
            code = EXIT_STALLED if reasons <= CONSEQUENCES else 1
            self._board.end(code)
            self._exit(code)
        gone = {states[place].rank: states[place] for place in dead}
        text = (
            f"hpcgnn: rank {names(gone, gone)} of {self.size} has ended without finishing (killed from outside, or out "
            "of memory?); the job ends. Continue with --resume"
        )
        self._finish_off(text, working=False)

    def _finish_off(self, text: str, working: bool = True) -> NoReturn:
        """Report the cause, unless another rank of this node does; ranks that do not wait show their stacks; all leave.

        Silent ranks of this node are killed: a stopped process obeys no launcher's request to end, and the launcher
        would wait for it.
        """
        first = self._board.ending() is None
        self._board.end(EXIT_STALLED, working)
        if first:
            print(text, end="\n" * bool(text), file=sys.stderr, flush=True)
            self._show_stack()
        self.heartbeat.failure = self.heartbeat.failure or ENDED  # for ranks of other nodes
        self._show()
        self._report(ended=True)
        time.sleep(2 * self._pause)  # the others show theirs
        for place in np.flatnonzero(self._silent()).tolist():
            if not self._board.is_gone(place):
                with contextlib.suppress(OSError):
                    os.kill(int(self._board.records["pid"][place]), signal.SIGKILL)
        self._exit()

    def _follow(self, code: int, working: bool) -> NoReturn:
        """Leave, since one rank of the node has reported the cause."""
        if working and not self.heartbeat.waits:
            self._show_stack()
        self.heartbeat.failure = self.heartbeat.failure or ENDED
        self._show()
        self._exit(code)

    def _show_stack(self) -> None:
        # In one piece: faulthandler writes words, and other ranks show their stacks at the same time.
        with os.fdopen(os.memfd_create("stack"), "w+b") as file:
            faulthandler.dump_traceback(file=file, all_threads=True)
            file.seek(0)
            stack = file.read().decode(errors="replace")
        print(f"hpcgnn: where rank {self.rank} stands:\n{stack}", end="", file=sys.stderr, flush=True)

    def _exit(self, code: int = EXIT_STALLED) -> NoReturn:
        try:
            sys.stderr.flush()
            time.sleep(_SECONDS_TO_BE_HEARD)
        finally:
            os._exit(code)


def describe_standstill(states: dict[int, RankState], size: int, idle: float, limit: float) -> str:
    """Return the message.

    Args:
        states: {rank: RankState} of the known ranks.
        size: number of ranks of the job.
        idle: seconds without any progress.
        limit: seconds of --watchdog.
    """
    silent = [rank for rank, state in states.items() if state.silent]
    working = sorted(rank for rank, state in states.items() if not state.silent and not state.waits)
    parts, places = [], dict[str, list[int]]()
    if silent:
        parts.append(f"rank {names(silent, states)} shows no sign of life (stopped, or its node is lost)")
    parts += [f"rank {names([rank], states)} works at something else" for rank in working[:4]]
    if not parts and size > len(states):
        unseen = size - len(states)
        parts.append(f"a rank of another node, none of this one: of {unseen} ranks nothing is known here")
    elif not parts:
        parts.append("none: all wait, for different things, which is a fault of the program")
    for rank, state in sorted(states.items()):
        if state.waits and not state.silent:
            places.setdefault(state.at, []).append(rank)
    waiting = "; ".join(f"rank {names(ranks, {})} for {at!r}" for at, ranks in places.items())
    return (
        f"hpcgnn: no rank has got on for {idle:.0f} s (--watchdog {limit:g}); the job ends. Did not "
        f"arrive: {'; '.join(parts)}. Waiting: {waiting}. Continue with --resume"
    )


def names(ranks: Collection[int], states: dict[int, RankState]) -> str:
    """Describe the first few ranks with their nodes: '0, 2 (node1, last at "load")'."""
    named = [
        f"{rank} ({states[rank].host}, last at {states[rank].at!r})" if rank in states else str(rank)
        for rank in sorted(ranks)
    ]
    more = len(named) - _MOST_NAMES
    return ", ".join(named[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
