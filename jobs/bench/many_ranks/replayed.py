"""An epoch replayed turn by turn: when each rank has what it needs to go on, and what it waits for.

All is counted but the seconds. The streams of the epoch, their turns and the rows of each pair of ranks in each turn
are those of a job (hpcgnn/estimate/counts/traffic.py). A rank begins the messages of a turn when it begins to compute
the one before, as exchange/stream.py does, and waits at the end for all ranks.
"""

from dataclasses import dataclass

import numpy as np

from hpcgnn.estimate.counts.traffic import cut_turns, halo_rounds


@dataclass(frozen=True)
class Links:
    """latency: seconds of a message between nodes; bandwidth: bytes per second of a node in each direction, when all
    send; ranks: of a node; message, byte: seconds of the one thread of a rank that begins and copies messages, for each
    that it sends or receives; exchange: for those that it begins together.
    """

    latency: float
    bandwidth: float
    ranks: int
    message: float
    byte: float
    exchange: float = 0.0


@dataclass(frozen=True)
class Troubles:
    """noise: deviation of the logarithm of what a turn takes on a rank; straggler: how many times as long rank 0
    takes.
    """

    noise: float = 0.0
    straggler: float = 1.0


@dataclass(frozen=True)
class Passage:
    """One turn of one stream. receiver, sender: (pairs,) ranks that exchange rows; there, back: bytes of these."""

    receiver: np.ndarray
    sender: np.ndarray
    there: np.ndarray
    back: np.ndarray


def passages(forecast, row_bytes, limit):
    """[[Passage of each turn]] of the streams of an epoch. row_bytes, limit: as of `halo_traffic`."""
    found = []
    for place, used in forecast.uses.items():
        halo, rounds = forecast.halos[place], halo_rounds(place, forecast.halos, row_bytes, limit)
        sender = (halo.receiver - halo.offset) % halo.ranks
        by_offset = np.argsort(halo.offset, kind="stable")
        ends = np.searchsorted(halo.offset[by_offset], np.arange(halo.ranks + 1))
        for use, times in used.items():
            stream = []
            for segments in cut_turns(rounds, use, limit):
                pairs, rows = [], []
                for each in segments:
                    of = by_offset[ends[each.offset] : ends[each.offset + 1]]
                    count = np.clip(halo.rows[of] - each.start, 0, each.stop - each.start)
                    pairs.append(of[count > 0])
                    rows.append(count[count > 0])
                index, count = np.concatenate(pairs), np.concatenate(rows)
                back = 0 if use.back is None else use.back.row_bytes
                stream.append(Passage(halo.receiver[index], sender[index], count * use.rows.row_bytes, count * back))
            found += [stream] * times
    return found


def epoch_seconds(streams, work, links, reduction, troubles=Troubles(), seed=0):
    """Seconds of an epoch. streams: of `passages`; work: float (P,), seconds of each rank, its threads sharing
    what they can; reduction: seconds of what all ranks reduce at the end.
    """
    ranks, draw = len(work), np.random.default_rng(seed)
    slow = np.ones(ranks)
    slow[0] = troubles.straggler
    now, turns = np.zeros(ranks), sum(1 + len(stream) for stream in streams)
    for stream in streams:
        posted, returned = now.copy(), np.zeros(ranks)
        for index in range(1 + len(stream)):  # first the own edges alone
            if index:
                now = np.maximum(now, _arrived(stream[index - 1], posted, links, "there"))
                posted = now.copy()
            noise = draw.lognormal(0.0, troubles.noise, ranks) if troubles.noise else 1.0
            now = now + work / turns * slow * noise
            now = np.maximum(now, returned)
            if index:
                now += _handling(stream[index - 1], ranks, links)
                returned = _arrived(stream[index - 1], now, links, "back")
        now = np.maximum(now, returned)
    return float(now.max()) + reduction


def _handling(turn, ranks, links):
    """(P,): seconds of the one thread of each rank for what it sends and receives."""
    begun = (bool((turn.there > 0).any()) + bool((turn.back > 0).any())) * links.exchange
    cost = ((turn.there > 0).astype(float) + (turn.back > 0)) * links.message + (turn.there + turn.back) * links.byte
    return begun + np.bincount(turn.receiver, cost, ranks) + np.bincount(turn.sender, cost, ranks)


def _arrived(turn, posted, links, way):
    """(P,): when all that a rank is to receive is there. Ranks of a node share its link, which is idle when a rank
    begins to receive; within a node nothing takes time.
    """
    ranks = len(posted)
    source, dest = (turn.sender, turn.receiver) if way == "there" else (turn.receiver, turn.sender)
    size = getattr(turn, way)
    away = (source // links.ranks != dest // links.ranks) & (size > 0)
    source, dest, size = source[away], dest[away], size[away]
    nodes = -(-ranks // links.ranks)
    out = np.bincount(source // links.ranks, size, nodes) / links.bandwidth
    into = np.bincount(dest // links.ranks, size, nodes) / links.bandwidth
    arrival = posted.copy()
    np.maximum.at(arrival, dest, posted[source] + links.latency + out[source // links.ranks])
    receives = np.zeros(ranks, bool)
    receives[dest] = True
    node = np.arange(ranks) // links.ranks
    return np.where(receives, np.maximum(arrival, posted + links.latency + into[node]), posted)
