"""Ends a job that stands still, and names the ranks that did not arrive.

Launchers notice a process that ends, not one that stops. A rank may hang in a file system, be suspended, or be lost
with its node. All others then wait, at full price, until the wall-time limit. So a thread of each rank looks at the
board of its node (`heartbeat.py`) every second. *If some rank waits and no rank at all makes progress for the limit's
seconds*, the job stands still. A rank that still reads its share of the graph shows progress, and others may wait for
it however long it takes.

Every rank writes its own record and compares those on its node. One rank of the node, the first with a heartbeat, does
the rest. The kernel notifies it of ended processes, and it writes its node's file for other nodes. It reads theirs when
its own node makes no progress (`node_reports.py`). If it stops or dies, the next one takes over.

The thread calls no MPI, for MPI may be what hangs. It writes its findings and the stacks of some ranks, and leaves by
`os._exit` with a code other than 0. The launcher then ends the others. A node notices within seconds a process that
ended without leaving in order, if the launcher does not (srun without --kill-on-bad-exit). Time in which this process
itself was suspended does not count: a whole job may be suspended, and go on.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

import numpy as np

from hpcgnn import cores
from hpcgnn.comm.health.heartbeat import (
    Heartbeat,
    HeartbeatBoard,
    HeartbeatHistory,
    HeartbeatRecord,
    ProcessWatch,
    start_time,
)
from hpcgnn.comm.health.node_reports import NodeReports, NodeSummary, describe_standstill, names

# sysexits.h calls it a temporary failure: starting again with --resume may well succeed.
EXIT_STALLED = 75
# A second is short against any limit; tests have short limits.
_SECONDS_BETWEEN_LOOKS = 1.0
# A rank is silent after these looks without a change of its record, a node after these reports without a change.
_SILENT_LOOKS, _SILENT_REPORTS = 4, 3
_SECONDS_BETWEEN_REPORTS = 10.0
# Other nodes are looked at once when nobody here has got on for this part of the limit, so that it is known later which
# of them wrote since, and regularly from half of the limit on.
_FIRST_READ, _READS = 0.05, 0.5
# Launchers discard output that they have not forwarded when a rank leaves with an error.
_SECONDS_TO_BE_HEARD = 1.0
# Whoever cannot see who is missing lets those speak first who may.
_SECONDS_FOR_OTHERS = 3.0
# The `failure` of a rank that ended because others had.
LOST, ENDED = "lost a connection", "ended by the watchdog"
CONSEQUENCES = {LOST, ENDED}
# Ranks that fail alike do so at nearly the same time, unless they share cores.
_SECONDS_FOR_FAILURES = 1.0
_MOST_STACKS = 8


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
        self.several_nodes = self._board.places < size
        self._history = HeartbeatHistory(self._board, _SILENT_LOOKS)
        self._processes, self._watched = ProcessWatch(), 0
        self._pause = min(_SECONDS_BETWEEN_LOOKS, limit / 10) if limit else _SECONDS_BETWEEN_LOOKS
        self._interval = min(_SECONDS_BETWEEN_REPORTS, limit / 8) if limit else _SECONDS_BETWEEN_REPORTS
        self._end, self._looks, self._left = threading.Event(), 0, False
        # Seconds in which this process ran: all of them, those since a rank of the node got on.
        self._clock, self._idle, self._looked = 0.0, 0.0, time.monotonic()
        self._reports: NodeReports | None = None
        self._next_report = self._next_read = 0.0
        self._nodes: dict[str, tuple[NodeSummary, float]] = {}  # (the latest, when it was first seen)
        self._show()  # at once: a rank may stop before the first look

    def share(self, folder: Path) -> None:
        """Also write this node's state to a file that other nodes can read, if the folder exists.

        All ranks call it, after all of them have a watchdog.
        """
        first = int(self._board.numbers["rank"][0])
        reports = NodeReports(folder, first)
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
        self._board.write(self.rank, self._looks, self.heartbeat, self._left)
        # Rank 0 waits less: if it has failed too, it speaks and ends the job before another thinks that it is the
        # lowest.
        seconds = _SECONDS_FOR_FAILURES * (1 if self.rank == 0 else 3)
        time.sleep(seconds / 4)
        if self._failures_here(line)[1]:
            self._report()
        time.sleep(seconds * 3 / 4)
        failed, lowest = self._failures_here(line)
        if lowest and self._reports is not None:
            told = [record for ranks in self._reports.records().values() for record, _ in ranks.values()]
            failed |= {record.rank: record.failure for record in told if record.failure}
        return failed

    def _failures_here(self, line: str) -> tuple[dict[int, str], bool]:
        """Return ({rank: its failure} of this node, whether this rank is the lowest of these)."""
        failed = {record.rank: record.failure for record in self._board.read_all().values() if record.failure}
        failed.setdefault(self.rank, line)
        return failed, self.rank == min(failed)

    def wait_for_a_verdict(self) -> None:
        """Wait for the thread to end this process if a rank of this node has died: one of them names that rank."""
        for _ in range(20 if self._board.places > 1 else 0):
            if self._board.ending() or any(record.is_dead() for record in self._board.read_all().values()):
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
        self._processes.close()
        self._board.close()

    def _show(self) -> None:
        self._looks += 1
        self._board.write(self.rank, self._looks, self.heartbeat, self._left)

    def _look(self) -> None:
        now = time.monotonic()
        passed = min(now - self._looked, 2 * self._pause)
        self._looked = now
        self._clock += passed
        self._show()
        ending = self._board.ending()
        if ending is not None:
            self._follow(*ending)
        self._idle = 0.0 if self._history.look() else self._idle + passed
        if self._leads():
            self._end_if_still(self._job_idle())

    def _leads(self) -> bool:
        """Whether this rank looks after its node, whose dead end the job. The others look after the one that does."""
        numbers = self._board.numbers
        while True:
            leader = self._history.leader()
            mine = leader == self._board.place
            if not mine:
                self._watch(leader)
            elif np.count_nonzero(numbers["looks"]) != self._watched:
                written = np.flatnonzero(numbers["looks"]).tolist()
                for place in written:
                    self._watch(place)
                self._watched = len(written)
            dead = [place for place in self._processes.ended() if not numbers["left"][place]]
            self._history.dead[dead] = True
            if mine:
                if dead:
                    self._end_dead(dead)
                return True
            if leader not in dead:
                return False

    def _watch(self, place: int) -> None:
        number = self._board.numbers[place]
        self._processes.watch(place, int(number["pid"]), int(number["started"]))

    def _report(self, ended: bool = False) -> None:
        """Write this node's file anew. A file system that is full or gone is no evidence about the ranks."""
        if self._reports is not None:
            with contextlib.suppress(OSError):
                waiting = int(self._board.numbers["waits"].sum())
                summary = NodeSummary(self._looks, self._idle, self._seen_idle(), waiting, ended)
                self._reports.write(self._board, self._history, summary)

    def _job_idle(self) -> float:
        """Seconds in which no rank has got on, of this node or of another one that can be seen."""
        if self._reports is None:
            return self._idle
        if self._clock >= self._next_report:
            self._report()
            self._next_report = self._clock + self._interval
        if not self.limit or self._idle < _FIRST_READ * self.limit:
            self._nodes, self._next_read = {}, 0.0
            return self._idle
        if self._clock >= self._next_read:
            first = self._reports.FIRST
            asks_first = self._reports.name != first and not (first in self._nodes and self._is_lost(first))
            for name, summary in self._reports.summaries(asks_first).items():
                if name not in self._nodes or self._nodes[name][0].looks != summary.looks:
                    self._nodes[name] = summary, self._clock
            until = self._interval if self._idle >= _READS * self.limit else _READS * self.limit - self._idle
            self._next_read = self._clock + (until if self._idle < self.limit else self._pause)
        return self._seen_idle()

    def _seen_idle(self) -> float:
        """Return the seconds without progress on any rank, by the files of other nodes.

        Rank 0's node reads all of them. If it is lost, its last file is no evidence about the others.
        """
        idle = self._idle
        for name, (summary, since) in self._nodes.items():
            for_all = name == NodeReports.FIRST and not self._is_lost(name)
            idle = min(idle, (summary.job_idle if for_all else summary.idle) + self._clock - since)
        return idle

    def _end_if_still(self, idle: float) -> None:
        """End the job if it stands still, and it is for this node to say so. idle: seconds of the job."""
        waiting = self._board.numbers["waits"].any() or any(summary.waiting for summary, _ in self._nodes.values())
        if not self.limit or idle < self.limit or not waiting:
            return
        if any(summary.ended for summary, _ in self._nodes.values()):
            self._finish_off("")
        records, silent = self._all_records()
        # The first node that shows life prints the message; among nodes that see no other, one that sees more.
        sees_who = silent or len(records) == self.size or not all(record.waits for record in records.values())
        patience = 0.0 if sees_who else _SECONDS_FOR_OTHERS
        if self._reports is not None and any(
            name < self._reports.name and not self._is_lost(name) for name in self._nodes
        ):
            patience = 2 * self._interval + _SECONDS_FOR_OTHERS
        if idle >= self.limit + patience:
            self._finish_off(describe_standstill(records, silent, self.size, idle, self.limit), records, silent)

    def _is_lost(self, name: str) -> bool:
        return self._clock - self._nodes[name][1] > _SILENT_REPORTS * self._interval

    def _all_records(self) -> tuple[dict[int, HeartbeatRecord], set[int]]:
        """Return ({rank: HeartbeatRecord} of all visible ranks, the ranks among them without a sign of life)."""
        here, quiet = self._board.read_all(), self._history.silent()
        records = {record.rank: record for record in here.values()}
        silent = {record.rank for place, record in here.items() if quiet[place]}
        for name, ranks in self._reports.records().items() if self._reports is not None else ():
            records |= {rank: record for rank, (record, _) in ranks.items()}
            silent |= {
                rank for rank, (_, still) in ranks.items() if still or (name in self._nodes and self._is_lost(name))
            }
        return records, silent

    def _end_dead(self, dead: Collection[int]) -> None:
        records = self._board.read_all()
        reasons = {records[place].failure for place in dead}
        if "" not in reasons:  # the dead ranks have printed the reason, or did not know it either
            code = EXIT_STALLED if reasons <= CONSEQUENCES else 1
            self._board.end(code)
            self._exit(code)
        gone = {records[place].rank: records[place] for place in dead}
        text = (
            f"hpcgnn: rank {names(gone, gone)} of {self.size} has ended without finishing (killed from outside, or out "
            "of memory?); the job ends. Continue with --resume"
        )
        self._finish_off(text, {record.rank: record for record in records.values()}, set(gone), working=False)

    def _finish_off(
        self,
        text: str,
        records: dict[int, HeartbeatRecord] | None = None,
        silent: Collection[int] = (),
        working: bool = True,
    ) -> NoReturn:
        """Report the cause, unless another rank of this node does; some ranks show their stacks; all leave.

        Silent ranks of this node are killed: a stopped process obeys no launcher's request to end, and the launcher
        would wait for it.
        """
        arrived = sorted(rank for rank, record in (records or {}).items() if record.waits and rank not in silent)
        stacks = arrived[:_MOST_STACKS][-1] if arrived else -1
        if self._board.claim_speech():
            if text:
                print(text, file=sys.stderr, flush=True)
            self._show_stack()
        self._board.end(EXIT_STALLED, stacks, working)
        self.heartbeat.failure = self.heartbeat.failure or ENDED  # for ranks of other nodes
        self._show()
        self._report(ended=True)
        time.sleep(2 * self._pause)  # the others show theirs
        quiet = self._history.silent()
        for place in np.flatnonzero(quiet).tolist():
            record = self._board.read(place)
            if start_time(record.pid) == record.started:
                with contextlib.suppress(OSError):
                    os.kill(record.pid, signal.SIGKILL)
        self._exit()

    def _follow(self, code: int, stacks: int, working: bool) -> NoReturn:
        """Leave, since one rank of the node has reported the cause."""
        if self.rank <= stacks or (working and not self.heartbeat.waits):
            self._show_stack()
        self.heartbeat.failure = self.heartbeat.failure or ENDED
        self._show()
        self._exit(code)

    def _show_stack(self) -> None:
        print(f"hpcgnn: where rank {self.rank} stands:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)

    def _exit(self, code: int = EXIT_STALLED) -> NoReturn:
        try:
            sys.stderr.flush()
            time.sleep(_SECONDS_TO_BE_HEARD)
        finally:
            os._exit(code)
