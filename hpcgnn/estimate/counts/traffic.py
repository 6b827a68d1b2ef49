"""Exact bytes and messages of an epoch, from the uses of its streams and the rows between each pair of ranks.

A run's own functions cut rounds and turns (exchange/rounds.py, exchange/buffers.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcgnn.estimate.counts.between_nodes import Nodes, Sent, sent_in_lanes
from hpcgnn.estimate.counts.halo_counts import HaloCounts
from hpcgnn.estimate.trial.places import Place
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.rounds import Rounds, Segment, coalesce, merge
from hpcgnn.exchange.stream import Use, row_sizes
from hpcgnn.exchange.wire import Form


@dataclass
class Traffic:
    """The traffic of one kind.

    Attributes:
        bytes, messages: int64 (P,), sent by each rank.
    """

    bytes: np.ndarray
    messages: np.ndarray


def halo_traffic(
    uses: Mapping[Place, Counter[Use]],
    halos: Mapping[Place, HaloCounts],
    row_bytes: int,
    limit: int,
    per_node: int = 1,
) -> dict[str, Traffic]:
    """{kind: Traffic}, of messages between nodes alone where nodes have several ranks.

    Args:
        uses, halos: uses of streams, and rows of their places.
        row_bytes: of the widest row.
        limit: bytes of the halo buffers.
        per_node: ranks of a node that send each other messages.
    """
    found, cap = dict[str, Traffic](), max(1, HaloBuffers(limit).cap(max(1, row_bytes)))
    for place, used in uses.items():
        halo = halos[place]
        rounds = halo.rounds(cap if halo.nodes is None else halo.nodes.cap(cap))
        for use, times in used.items():
            turns = _cut_turns(rounds, use, limit, halo.nodes)
            counted = halo if halo.nodes is not None or per_node == 1 else halo.crossing(per_node)
            sent = _sent(counted, [each for turn in turns for each in turn])
            empty = np.zeros_like(sent.rows)
            kind = found.setdefault(use.kind, Traffic(empty.copy(), empty.copy()))
            if use.rows.row_bytes:
                kind.bytes += times * use.rows.row_bytes * sent.rows
                kind.messages += times * sent.messages
            if use.back is not None:
                kind.bytes += times * use.back.row_bytes * sent.rows_back
                kind.messages += times * sent.messages_back
    return found


def _cut_turns(rounds: Rounds, use: Use, limit: int, nodes: Nodes | None = None) -> list[list[Segment]]:
    """Return the segments of each turn of a stream, cut as Stream does.

    Args:
        rounds: the rounds.
        use: a use of the stream.
        limit: bytes of the halo buffers.
        nodes: the Nodes that exchange, or None for ranks.
    """
    back = use.back or Form(0, 0, use.rows.dtype)
    cap = HaloBuffers(limit).cap(*row_sizes(use.rows, back), rounds.longest, 1 if nodes is None else nodes.fewest)
    groups = coalesce(rounds.sizes, cap)
    return [merge(each for index in group for each in rounds.segments[index]) for group in groups]


def _sent(halo: HaloCounts, segments: Sequence[Segment]) -> Sent:
    """Return the messages of each rank in one pass over these segments."""
    if halo.nodes is not None:
        return sent_in_lanes(halo.nodes, halo.receiver, halo.offset, halo.rows, segments)
    there, back = _messages(halo, [(each.offset, each.start) for each in segments])
    return Sent(halo.sent, there, halo.received, back)


def _messages(halo: HaloCounts, segments: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 (P,) twice: each rank's messages with rows, and its messages with gradients.

    Args:
        halo: counts of the rows.
        segments: (ring offset, first row) of each.
    """
    offsets, starts = np.array(segments, np.int64).reshape(-1, 2).T
    size = 1 + int(max(halo.rows.max(initial=0), starts.max(initial=0)))
    keys = np.sort(offsets * size + starts)
    first = np.searchsorted(keys, halo.offset * size)
    counts = np.searchsorted(keys, halo.offset * size + halo.rows) - first
    sender = (halo.receiver - halo.offset) % halo.ranks
    there, back = (np.bincount(who, counts, halo.ranks).astype(np.int64) for who in (sender, halo.receiver))
    return there, back
