"""Exact bytes and messages of an epoch, from the uses of its streams and the rows between each pair of ranks.

Rows are the different nodes at the ends of edges, or least covers of these. Nodes whose ranks read rows in place
(exchange/peers.py) exchange as one. A run's own functions cut rounds and turns (exchange/rounds.py,
exchange/buffers.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.peers import cap_of_nodes
from hpcgnn.exchange.rounds import Rounds, Segment, Sides, coalesce, cut, merge, segments
from hpcgnn.exchange.row_codec import RowFormat
from hpcgnn.exchange.stream import Use, row_sizes
from hpcgnn.graph.cover import least_cover

if TYPE_CHECKING:
    from hpcgnn.engine.views import Views

#: (the layer whose share of the graph rows go along, None for all of the graph; 'inward' or 'outward').
Place = tuple[int | None, str]


def place_of(stream: Any, views: "Views") -> Place | None:
    """Return the part of the graph that a stream goes along, or None for an unknown plan."""
    for layer, share in [(None, views.local), *enumerate(views.shares)]:
        for way in ("inward", "outward"):
            if share is not None and getattr(share, way).plan is stream.plan:
                return layer, way
    return None


@dataclass(frozen=True)
class Nodes:
    """Nodes of consecutive ranks.

    Attributes:
        ranks: P.
        per_node: ranks of each node; the last one may have fewer.
        returns: whether anything returns to the rows.
        narrows: whether rows are narrowed on their way.
    """

    ranks: int
    per_node: int
    returns: bool = False
    narrows: bool = False

    @property
    def number(self) -> int:
        """How many nodes there are."""
        return -(-self.ranks // self.per_node)

    @cached_property
    def sizes(self) -> np.ndarray:
        """int64 (number,): the ranks of each node."""
        return np.minimum(self.per_node, self.ranks - self.per_node * np.arange(self.number))

    @property
    def fewest(self) -> int:
        """The ranks of the node that has fewest."""
        return int(self.sizes.min())

    def cap(self, cap: int) -> int:
        """The rows of a round between nodes, of those of a round between ranks."""
        return cap_of_nodes(cap, self.fewest, self.returns, self.narrows)


# Rows of a rank are numbered from 0; those of a node are not.
_OF_A_RANK = 1 << 32
_NO_PAIRS = (np.zeros(0, np.int64),) * 3


@dataclass(frozen=True)
class HaloCounts:
    """The number of rows between each pair of ranks, for one direction of the edges, or a layer's part of it.

    Attributes:
        nodes: the Nodes that exchange rows; P is their number. Ranks are nodes of one rank.
        receiver, offset, rows: int64 (pairs,), for pairs with rows to send, by receiver. The sender is receiver -
            offset (modulo P).
    """

    nodes: Nodes
    receiver: np.ndarray
    offset: np.ndarray
    rows: np.ndarray

    @property
    def ranks(self) -> int:
        """P."""
        return self.nodes.number

    @cached_property
    def received(self) -> np.ndarray:
        """int64 (P,): the halo rows of each rank."""
        return np.bincount(self.receiver, self.rows, self.ranks).astype(np.int64)

    @cached_property
    def sent(self) -> np.ndarray:
        """int64 (P,): the rows that each rank sends."""
        return np.bincount((self.receiver - self.offset) % self.ranks, self.rows, self.ranks).astype(np.int64)

    @cached_property
    def peers(self) -> np.ndarray:
        """int64 (P,): from how many ranks each receives."""
        return np.bincount(self.receiver, minlength=self.ranks)

    @cached_property
    def takers(self) -> np.ndarray:
        """int64 (P,): to how many ranks each sends."""
        return np.bincount((self.receiver - self.offset) % self.ranks, minlength=self.ranks)

    @cached_property
    def most(self) -> np.ndarray:
        """int64 (P - 1,): by ring offset, the most rows that any rank receives."""
        found = np.zeros(self.ranks, np.int64)
        np.maximum.at(found, self.offset, self.rows)
        return found[1:]

    @cached_property
    def largest(self) -> int:
        """The most rows that any rank receives, or sends."""
        return int(max(self.received.max(initial=0), self.sent.max(initial=0)))

    def crossing(self, per_node: int) -> "HaloCounts":
        """Return the pairs of ranks on different nodes, of so many consecutive ranks each."""
        sender = (self.receiver - self.offset) % self.ranks
        away = sender // per_node != self.receiver // per_node
        return replace(self, receiver=self.receiver[away], offset=self.offset[away], rows=self.rows[away])

    @property
    def adjoint(self) -> "HaloCounts":
        """As many rows the other way."""
        sender = (self.receiver - self.offset) % self.ranks
        order = np.argsort(sender, kind="stable")
        return replace(self, receiver=sender[order], offset=(self.ranks - self.offset)[order], rows=self.rows[order])

    def rounds(self, cap: int) -> Rounds:
        """The rounds that the ranks agree on for buffers of `cap` rows."""
        stops = cut(self.sides.furthest, self.largest, cap, self.ranks)
        return Rounds(segments(stops, self.most.tolist()), self.sides.sizes(stops).tolist())

    @cached_property
    def sides(self) -> Sides:
        """Return the rows that each rank receives, and those it sends."""
        sender = (self.receiver - self.offset) % self.ranks
        side = np.concatenate([self.receiver, self.ranks + sender])
        return Sides(side, np.tile(self.offset, 2), np.tile(self.rows, 2), 2 * self.ranks, self.ranks)


class Needs:
    """Collects the different nodes that each rank receives, by the rank that they come from. between: Nodes that stand
    for ranks, or of one rank each.
    """

    def __init__(self, between: Nodes) -> None:
        self._ranks, self._between = between.number, between
        self._found = [_NO_PAIRS]
        self._pending, self._node = list[tuple[np.ndarray, ...]](), 0

    def add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        """Edges from nodes of these owners into rows of a rank: (E,) each. Ranks come in ascending order."""
        node, of = rank // self._between.per_node, owner // self._between.per_node
        if node != self._node:
            self._end_node()
        self._node, away = node, of != node
        self._pending.append((of[away], nodes[away], rows[away].astype(np.int64) + rank * _OF_A_RANK))

    def _end_node(self) -> None:
        """All edges of a node are there."""
        if self._pending:
            parts, self._pending = self._pending, []
            self._add(self._node, *(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        _, first = np.unique(nodes, return_index=True)
        counts = np.bincount((rank - owner[first].astype(np.int64)) % self._ranks, minlength=self._ranks)
        offsets = np.flatnonzero(counts)
        self._found.append((np.full(len(offsets), rank), offsets, counts[offsets]))

    def counts(self) -> HaloCounts:
        """The rows, where all that are needed travel."""
        return self._joined(self._found)

    def _joined(self, found: Sequence[tuple[np.ndarray, ...]]) -> HaloCounts:
        self._end_node()
        receiver, offset, rows = (np.concatenate(part) for part in zip(*found, strict=True))
        return HaloCounts(self._between, receiver, offset, rows)


class Covers(Needs):
    """Also collects the sizes of least covers of the edges between ranks (graph/transforms/vertex_cover.py)."""

    def __init__(self, between: Nodes) -> None:
        super().__init__(between)
        self._fewest = [_NO_PAIRS]

    def _add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        super()._add(rank, owner, nodes, rows)
        if len(nodes) == 0:
            return
        offset = (rank - owner.astype(np.int64)) % self._ranks
        order = np.lexsort((rows, nodes, offset))
        nodes, rows = nodes[order], rows[order]
        offsets, firsts = np.unique(offset[order], return_index=True)
        sizes = [_cover(*each) for each in zip(np.split(nodes, firsts[1:]), np.split(rows, firsts[1:]), strict=False)]
        self._fewest.append((np.full(len(offsets), rank), offsets, np.array(sizes, np.int64)))

    def fewest(self) -> HaloCounts:
        """The rows and sums of rows, where the fewest travel."""
        return self._joined(self._fewest)


def _cover(nodes: np.ndarray, rows: np.ndarray) -> int:
    """The size of a least cover of these edges (E,), which are ordered by nodes."""
    _, firsts = np.unique(nodes, return_index=True)
    ends, indices = np.unique(rows, return_inverse=True)
    return least_cover(np.append(firsts, len(nodes)), indices.astype(np.int32), len(ends))[0]


def sent_in_lanes(halo: HaloCounts, segments: Iterable[Segment]) -> np.ndarray:
    """int64 (4, ranks): what each rank sends of the messages of nodes in one pass over these segments, in lanes as of
    Peers: rows and their messages; what returns for rows, and its messages.
    """
    nodes, found = halo.nodes, np.zeros((4, halo.nodes.ranks), np.int64)
    order = np.argsort(halo.offset, kind="stable")
    firsts = np.searchsorted(halo.offset[order], np.arange(nodes.number + 1))
    for segment in segments:
        at = order[firsts[segment.offset] : firsts[segment.offset + 1]]
        count = np.maximum(np.minimum(halo.rows[at], segment.stop) - segment.start, 0)
        to, source = halo.receiver[at], (halo.receiver[at] - segment.offset) % nodes.number
        senders, receivers = nodes.sizes[source], nodes.sizes[to]
        for place in range(nodes.per_node):
            lane = np.where(place < senders, count * (place + 1) // senders - count * place // senders, 0)
            there = lane > 0
            sender, taker = source * nodes.per_node + place, to * nodes.per_node + place % receivers
            for rank, lanes, messages in ((sender, *found[:2]), (taker, *found[2:])):
                np.add.at(lanes, rank[there], lane[there])
                np.add.at(messages, rank[there], 1)
    return found


@dataclass
class Traffic:
    """The traffic of one kind.

    Attributes:
        bytes, messages: int64 (P,), sent by each rank.
        received: int64 (P,), bytes.
    """

    bytes: np.ndarray
    messages: np.ndarray
    received: np.ndarray


@dataclass(frozen=True)
class CountedLanes:
    """The messages of streams, of nodes alone where nodes have several ranks.

    Attributes:
        halos: rows of the places of the streams.
        row_bytes: of the widest row.
        limit: bytes of the halo buffers.
    """

    halos: Mapping[Place, HaloCounts]
    row_bytes: int
    limit: int

    def traffic(self, uses: Mapping[Place, Counter[Use]]) -> dict[str, Traffic]:
        """{kind: Traffic} of these uses."""
        found = dict[str, Traffic]()
        for use, times, (rows, messages, back, messages_back) in self._of(uses):
            kind = found.setdefault(use.kind, Traffic(*np.zeros((3, len(rows)), np.int64)))
            # What returns goes from those who received.
            ways = [(use.rows, rows, back, messages)] if use.rows.row_bytes else []
            ways += [(use.back, back, rows, messages_back)] if use.back is not None else []
            for form, sent, received, count in ways:
                kind.bytes += times * form.row_bytes * sent
                kind.messages += times * count
                kind.received += times * form.row_bytes * received
        return found

    def prepared(self, uses: Mapping[Place, Counter[Use]]) -> np.ndarray:
        """int64 (P,): the requests that each rank prepares, to send and to receive: one for each message of a turn and
        direction. uses: {use: how many streams have it}, of any kind.
        """
        found = np.zeros(next(iter(self.halos.values())).nodes.ranks, np.int64)
        for use, streams, (_, sent, _, received) in self._of(uses):
            found += streams * (bool(use.rows.row_bytes) + (use.back is not None)) * (sent + received)
        return found

    def _of(self, uses: Mapping[Place, Counter[Use]]) -> Iterator[tuple[Use, int, np.ndarray]]:
        """(use, times, `sent_in_lanes`) of each."""
        cap = max(1, HaloBuffers(self.limit).cap(max(1, self.row_bytes)))
        for place, used in uses.items():
            halo = self.halos[place]
            rounds = halo.rounds(halo.nodes.cap(cap))
            for use, times in used.items():
                turns = _cut_turns(rounds, use, self.limit, halo.nodes)
                yield use, times, sent_in_lanes(halo, [each for turn in turns for each in turn])


def _cut_turns(rounds: Rounds, use: Use, limit: int, nodes: Nodes) -> list[list[Segment]]:
    """Return the segments of each turn of a stream, cut as Stream does.

    Args:
        rounds: the rounds.
        use: a use of the stream.
        limit: bytes of the halo buffers.
        nodes: the Nodes that exchange.
    """
    back = use.back or RowFormat(0, 0, use.rows.dtype)
    cap = HaloBuffers(limit).cap(*row_sizes(use.rows, back), rounds.longest, nodes.fewest)
    groups = coalesce(rounds.sizes, cap)
    return [merge(each for index in group for each in rounds.segments[index]) for group in groups]
