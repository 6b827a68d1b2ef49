"""How nodes see each other's heartbeats, and the message of a job that stands still.

Each node has a file in `heartbeats/` of the run directory. One rank writes for its node, and one reads for it, and only
while its own node makes no progress. So the shared file system has little load. The node of rank 0 reads the files of
all nodes, and the others read its file. So the number of opened files grows with the number of nodes, not with its
square. The first 64 bytes of a file are compared. The lines after them describe each rank, for the message that ends a
job and for people.
"""

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from hpcgnn.comm.health.heartbeat import HeartbeatBoard, HeartbeatHistory, HeartbeatRecord

_SUMMARY_BYTES = 64


class NodeSummary(NamedTuple):
    """A node's state.

    Attributes:
        looks: the writer's looks, which grow from summary to summary.
        idle: seconds without progress on the node.
        job_idle: seconds without progress on all nodes it knows of.
        waiting: number of ranks that wait for others.
        ended: whether the node has reported why the job ends.
    """

    looks: int
    idle: float
    job_idle: float
    waiting: int
    ended: bool


class NodeReports:
    """The files of all nodes. folder: `heartbeats/`; first: the first rank of this node, which names its file."""

    #: The file of the node of rank 0.
    FIRST = "from-rank-0000000"

    def __init__(self, folder: Path, first: int) -> None:
        self._folder, self.name = folder, f"from-rank-{first:07d}"

    def create(self) -> None:
        """Make the file of this node. Later writing does not, so that a folder that was removed stays removed. Raises
        OSError."""
        (self._folder / self.name).touch()

    def write(self, board: HeartbeatBoard, history: HeartbeatHistory, summary: NodeSummary) -> None:
        """Renew this node's file. Raises OSError."""
        silent = history.silent()
        words = f"{summary.looks} {summary.idle:.1f} {summary.job_idle:.1f} {summary.waiting} {int(summary.ended)}"
        lines = [
            json.dumps(
                {"rank": record.rank, "host": record.host, "at": record.at, "waits": record.waits}
                | ({"silent": True} if silent[place] else {})
                | ({"failure": record.failure} if record.failure else {})
            )
            for place, record in board.read_all().items()
        ]
        text = ("\n".join([words.ljust(_SUMMARY_BYTES - 1), *lines]) + "\n").encode()
        file = os.open(self._folder / self.name, os.O_WRONLY)
        try:
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))
        finally:
            os.close(file)

    def summaries(self, first: bool = False) -> dict[str, NodeSummary]:
        """Return {name: NodeSummary} of the other nodes. Missing and half-written summaries are left out.

        Args:
            first: read the node of rank 0 alone.
        """
        found = {}
        for path in [self._folder / self.FIRST] if first else self._others():
            with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
                looks, idle, job_idle, waiting, ended = file.read(_SUMMARY_BYTES).split()
                found[path.name] = NodeSummary(int(looks), float(idle), float(job_idle), int(waiting), ended == b"1")
        return found

    def records(self) -> dict[str, dict[int, tuple[HeartbeatRecord, bool]]]:
        """{name: {rank: (HeartbeatRecord, whether it is silent)}} of the other nodes."""
        found: dict[str, dict[int, tuple[HeartbeatRecord, bool]]] = {}
        for path in self._others():
            ranks = found.setdefault(path.name, {})
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                for line in path.read_text().splitlines()[1:]:
                    told = json.loads(line)
                    rank = int(told["rank"])
                    ranks[rank] = (
                        HeartbeatRecord(
                            *(rank, told["host"], 0, 0, 0, 0, told["waits"], told["at"], False),
                            failure=told.get("failure", ""),
                        ),
                        told.get("silent", False),
                    )
        return found

    def _others(self) -> list[Path]:
        try:
            return sorted(path for path in self._folder.iterdir() if path.name != self.name)
        except OSError:
            return []


def describe_standstill(
    records: Mapping[int, HeartbeatRecord], silent: Collection[int], size: int, idle: float, limit: float
) -> str:
    """Return the message.

    Args:
        records: {rank: HeartbeatRecord} of the known ranks.
        silent: the ranks among them without a sign of life.
        size: number of ranks of the job.
        idle: seconds without any progress.
        limit: seconds of --watchdog.
    """
    working = {rank for rank, record in records.items() if not record.waits}.difference(silent)
    arrived = set(records).difference(silent, working)
    unseen, parts = size - len(records), []
    if silent:
        parts.append(f"rank {names(silent, records)} shows no sign of life (stopped, or its node is lost)")
    parts += [f"rank {names({rank}, records)} works at something else" for rank in sorted(working)[:4]]
    if not parts and unseen:
        parts.append(f"a rank of another node, none of this one: of {unseen} ranks nothing is known here")
    elif not parts:
        parts.append("none: all wait, for different things, which is a fault of the program")
    places: dict[str, list[int]] = {}
    for rank in sorted(arrived):
        places.setdefault(records[rank].at, []).append(rank)
    waiting = "; ".join(f"rank {names(ranks, {})} for {at!r}" for at, ranks in places.items())
    return (
        f"hpcgnn: no rank has got on for {idle:.0f} s (--watchdog {limit:g}); the job ends. Did not "
        f"arrive: {'; '.join(parts)}. Waiting: {waiting}. Continue with --resume"
    )


def names(ranks: Collection[int], records: Mapping[int, HeartbeatRecord]) -> str:
    """Describe the first few ranks with their nodes: '0, 2 (node1, last at "load")'."""
    named = []
    for rank in sorted(ranks)[:8]:
        record = records.get(rank)
        named.append(str(rank) if record is None else f"{rank} ({record.host}, last at {record.at!r})")
    return ", ".join(named) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
