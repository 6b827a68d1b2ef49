"""Exact counts of a rank's messages, bytes and waits, which go into every result.

The ledger counts at the only place that calls MPI. So tests can check message and byte counts exactly, and a run record
can state them. Kinds of traffic are names: `halo_forward`, `halo_backward`, `allreduce`, `metrics`, `plan`. Inside
`with ledger.booked_as("evaluation")` all traffic is booked under that one name.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

#: {kind: its contents, for users who must state which data left a rank}, in the order of records.
KINDS = {
    "halo_forward": "hidden states of nodes, or projections of their features or states",
    "halo_backward": "gradients of those",
    "allreduce": "gradients of parameters",
    "average": "parameters and buffers of the model",
    "input": "features of nodes: rows, or entries where they are sparse",
    "resume": "as input and halo_forward, sent once more because the run was resumed",
    "evaluation": "as input or halo_forward, for the metrics; and counts",
    "metrics": "sums of losses, counts, seconds and statistics over nodes",
    "control": "short messages about errors, files and times",
    "plan": "which nodes are whose neighbours: ids, degrees and types of nodes",
}


@dataclass
class LedgerEntry:
    """Traffic of one kind on one rank. Bytes are payload; messages of an all-reduce count one per call."""

    messages: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds_waiting: float = 0.0


class Ledger:
    """Counts by kind of traffic since the last `take()`, and in total."""

    def __init__(self) -> None:
        self._since: dict[str, LedgerEntry] = {}
        self._total: dict[str, LedgerEntry] = {}
        self._alias: str | None = None

    @contextlib.contextmanager
    def booked_as(self, kind: str) -> Iterator[None]:
        """Book all traffic of the body under `kind` (the outermost name wins)."""
        before = self._alias
        self._alias = before or kind
        try:
            yield
        finally:
            self._alias = before

    def add(
        self, kind: str, messages: int = 0, bytes_sent: int = 0, bytes_received: int = 0, seconds_waiting: float = 0.0
    ) -> None:
        """Book traffic of one kind. Seconds are wall time spent waiting for it."""
        kind = self._alias or kind
        for book in (self._since, self._total):
            entry = book.get(kind)
            if entry is None:
                entry = book[kind] = LedgerEntry()
            entry.messages += messages
            entry.bytes_sent += bytes_sent
            entry.bytes_received += bytes_received
            entry.seconds_waiting += seconds_waiting

    def take(self) -> dict[str, LedgerEntry]:
        """The counts since the last call, by kind; they start again from zero."""
        since, self._since = self._since, {}
        return since

    def total(self) -> dict[str, dict[str, Any]]:
        """All counts so far, as plain dictionaries {kind: {messages, bytes_sent, bytes_received, seconds_waiting}}."""
        return {kind: asdict(entry) for kind, entry in sorted(self._total.items())}
