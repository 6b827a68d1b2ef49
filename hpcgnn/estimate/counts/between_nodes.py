"""Traffic between nodes of several ranks where their ranks read rows in place (exchange/peers.py)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpcgnn.exchange.peers import cap_of_nodes
from hpcgnn.exchange.rounds import Segment


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

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(number,): the sums of values (P,) of the ranks of each node."""
        return np.add.reduceat(values, self.per_node * np.arange(self.number))


class Sent(NamedTuple):
    """What each rank sends in one pass, int64 (P,) each: rows and their messages; what returns for rows, and its
    messages.
    """

    rows: np.ndarray
    messages: np.ndarray
    rows_back: np.ndarray
    messages_back: np.ndarray


def sent_in_lanes(
    nodes: Nodes, receiver: np.ndarray, offset: np.ndarray, rows: np.ndarray, segments: Iterable[Segment]
) -> Sent:
    """What each rank sends of what nodes send each other, cut into lanes as by Peers.

    Args:
        nodes: the Nodes.
        receiver: int64 (pairs,), node that receives.
        offset: int64 (pairs,), ring offset of the node that sends.
        rows: int64 (pairs,), rows of the pair.
        segments: Segment of all messages of a pass.
    """
    found = Sent(*(np.zeros(nodes.ranks, np.int64) for _ in range(4)))
    order = np.argsort(offset, kind="stable")
    firsts = np.searchsorted(offset[order], np.arange(nodes.number + 1))
    for segment in segments:
        at = order[firsts[segment.offset] : firsts[segment.offset + 1]]
        count = np.maximum(np.minimum(rows[at], segment.stop) - segment.start, 0)
        to, source = receiver[at], (receiver[at] - segment.offset) % nodes.number
        senders, receivers = nodes.sizes[source], nodes.sizes[to]
        for place in range(nodes.per_node):
            lane = np.where(place < senders, count * (place + 1) // senders - count * place // senders, 0)
            there = lane > 0
            sender, taker = source * nodes.per_node + place, to * nodes.per_node + place % receivers
            for rank, lanes, messages in ((sender, *found[:2]), (taker, *found[2:])):
                np.add.at(lanes, rank[there], lane[there])
                np.add.at(messages, rank[there], 1)
    return found
