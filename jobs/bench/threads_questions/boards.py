"""What the watchdog takes of a rank's processor time in a second, by the number of ranks.

    python jobs/bench/threads.py boards
    python jobs/bench/threads.py boards --ranks 4096 --on-node 128 1

A watchdog looks once a second, under the interpreter's lock. Its real looks are counted here, at the board of a node
whose other ranks are idle processes and whose records change before each look, beside the files of all other nodes:

* a rank: of any rank of the node;
* the first rank: of the one that also looks after the node's processes, and writes its file at every tenth look;
* nobody gets on: of that one on the node of rank 0, which then reads the other nodes' files, too, at every tenth look.

Figures are microseconds of the thread's processor time for each look, in the mean; no wall time.
"""

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from hpcgnn.comm.health.heartbeat import Heartbeat, HeartbeatBoard, HeartbeatHistory
from hpcgnn.comm.health.node_reports import NodeReports, NodeSummary
from hpcgnn.comm.health.processes import start_time
from hpcgnn.comm.health.watchdog import Watchdog

_LIMIT = 300.0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this question."""
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 1024, 4096], help="ranks of the job")
    parser.add_argument("--on-node", type=int, nargs="+", default=[128], help="ranks of a node")
    parser.add_argument("--looks", type=int, default=500, help="looks that are counted")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit code."""
    rows = []
    for on_node in arguments.on_node:
        others = _idle_processes(on_node - 1)
        try:
            for ranks in arguments.ranks:
                places = min(on_node, ranks)
                costs = [_cost(ranks, places, others, arguments.looks, *case) for case in _CASES]
                rows.append([ranks, places, -(-ranks // places), *(f"{1e6 * seconds:.0f}" for seconds in costs)])
        finally:
            for pid in others:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    print(tabulate(rows, ["ranks", "on a node", "nodes", "a rank (µs)", "the first rank (µs)", "nobody gets on (µs)"]))
    return 0


# place of the rank, whether others get on
_CASES = ((1, True), (0, True), (0, False))


def _idle_processes(count: int) -> list[int]:
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        pids.append(pid)
    return pids


def _cost(ranks: int, places: int, pids: list[int], looks: int, place: int, moving: bool) -> float:
    """Seconds of processor time for a look."""
    with tempfile.TemporaryDirectory(prefix="hpcgnn-boards-") as name:
        folder = Path(name)
        HeartbeatBoard.make(folder / "board", places)
        board = HeartbeatBoard.open(folder / "board", min(place, places - 1), places)
        assert board is not None, "the file was made a moment ago"
        mine = Heartbeat()
        dog = Watchdog(board.place, ranks, mine, _LIMIT, board)
        numbers = board.numbers
        for other, pid in zip((other for other in range(places) if other != board.place), pids):
            numbers[other] = (1, 1, start_time(pid), pid, other, 0, 0, 0)
        (folder / "heartbeats").mkdir()
        dog.share(folder / "heartbeats")
        _write_other_nodes(folder / "heartbeats", ranks, places)
        spent = 0.0
        for look in range(looks):
            numbers["looks"] += 1
            if moving:
                numbers["count"] += 1
                mine.beat()
            if look % 10 == 0:
                dog._next_report = dog._next_read = 0.0
            else:
                dog._next_report = dog._next_read = float("inf")
            if not moving:
                dog._idle = 0.4 * _LIMIT
            begin = time.thread_time()
            dog._look()
            spent += time.thread_time() - begin
        dog.finish()
        return spent / looks


def _write_other_nodes(folder: Path, ranks: int, places: int) -> None:
    board = HeartbeatBoard.alone()
    board.write(0, 1, Heartbeat(), False)
    history = HeartbeatHistory(board, 4)
    for first in range(places, ranks, places):
        report = NodeReports(folder, first)
        report.create()
        report.write(board, history, NodeSummary(1, 0.0, 0.0, 0, False))
