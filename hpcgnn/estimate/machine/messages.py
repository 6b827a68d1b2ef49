"""The cost of messages over a transport: of single sizes, of all ranks, and of a graph's halo.

All ranks do the same at once, as in training. Each sends to the rank at distance `apart`: if this is the number of
ranks on a node, every message leaves the node. A time is the median of several, the slowest rank's each time.
"""

import itertools
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.estimate.machine.machine import Network
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.graph.local import LocalGraph

MESSAGE = 1 << 20
#: Bytes of the messages that are shown.
SIZES = (8, 1 << 10, 1 << 16, MESSAGE, 1 << 24)
# {bytes: messages per measurement}; measurements of messages, and of sums.
_REPEATS = {8: 40, 1 << 10: 40, 1 << 16: 20, MESSAGE: 8, 1 << 24: 1}
_BATCHES, _SUMS = 5, 5
# Messages of one exchange, each of which takes less time than a single one.
_TOGETHER = 64
_HALO_REPEATS = 7
# Rounds of messages until they are prepared, as those of an epoch are from its third turn on.
_UNPREPARED = 2
_KIND = "bench"
# Bytes that a core has in no cache once it has gone through them.
_FAR = 1 << 25


def network_of(comm: Communicator, apart: int = 1, ranks_on_node: int | None = None) -> Network:
    """A Network as machine files have it. Collective. ranks_on_node: that share a node's bandwidth (None: all)."""
    if comm.size == 1:
        return Network(1e-6, 1e10, 1.0, 1e-10, 1e-6)  # nothing is sent
    ring(comm, MESSAGE, apart)
    latency, cpu = ring(comm, 8, apart)
    _, cpu_of_many = ring(comm, 8, apart, together=_TOGETHER)
    each = max(0.0, cpu_of_many - cpu) / (_TOGETHER - 1)
    seconds, _ = ring(comm, MESSAGE, apart)
    _, cpu_long = ring(comm, MESSAGE, apart, _FAR // MESSAGE)  # rows of a halo are in no cache
    slower = max(seconds - latency, seconds / 2)  # on a busy machine a small message may take as long by chance
    bandwidth = MESSAGE / slower * (ranks_on_node or comm.size)
    to_all = all_to_all(comm, MESSAGE) - latency
    share = slower * (comm.size - 1) / max(1e-12, to_all)
    cpu_byte = max(0.0, cpu_long - cpu) / MESSAGE
    summed = summing(comm, 4 * MESSAGE) / (1 - 1 / comm.size)
    step = reduction(comm, 8) / math.ceil(math.log2(comm.size))
    left = min(1.0, share) if comm.size > 2 else 1.0
    return Network(latency, bandwidth, left, cpu_byte, each, summed, max(0.0, cpu - each), step)


def ring(comm: Communicator, size: int, apart: int = 1, places: int = 1, together: int = 1) -> tuple[float, float]:
    """Measure messages of `size` bytes to one rank and from another. Collective.

    Args:
        comm: the communicator.
        size: bytes of a message.
        apart: distance of the receiver.
        places: number of memory locations, used in turn.
        together: number of such messages in one exchange.

    Returns:
        (seconds, processor seconds) of a message.
    """
    before, after = (comm.rank - apart) % comm.size, (comm.rank + apart) % comm.size
    sent, received = torch.ones(places, size, dtype=torch.uint8), torch.ones(places, size, dtype=torch.uint8)
    prepared = [
        comm.prepare([(after, sent[at])] * together, [(before, received[at])] * together, _KIND) for at in range(places)
    ]
    repeats, turn = max(places, _REPEATS.get(size, 8)), itertools.cycle(prepared)

    def once() -> None:
        next(turn).begin().finish()

    for _ in range(_UNPREPARED * places):
        once()
    taken = np.empty((_BATCHES, 2))
    for batch in range(_BATCHES):
        comm.barrier()
        start, used = time.perf_counter(), _processor()
        for _ in range(repeats):
            once()
        taken[batch] = time.perf_counter() - start, _processor() - used
    slowest = comm.allreduce_(torch.from_numpy(taken / repeats), "control", "max").numpy()
    seconds, processor = np.median(slowest, axis=0).tolist()
    return seconds, processor


def all_to_all(comm: Communicator, size: int) -> float:
    """Return the seconds of a message of `size` bytes from each rank to each other one. Collective."""
    others = [(comm.rank + offset) % comm.size for offset in range(1, comm.size)]
    sent = torch.ones(size, dtype=torch.uint8)
    incoming = [(rank, torch.empty(size, dtype=torch.uint8)) for rank in reversed(others)]
    prepared = comm.prepare([(rank, sent) for rank in others], incoming, _KIND)
    for _ in range(_UNPREPARED):
        prepared.begin().finish()
    return _slowest(comm, lambda: prepared.begin().finish(), 5)


def reduction(comm: Communicator, size: int) -> float:
    """Return the seconds of a sum over all ranks of `size` bytes of fp32 numbers. Collective."""
    numbers = torch.zeros(max(1, size // 4))
    return _slowest(comm, lambda: comm.allreduce_(numbers, _KIND), max(5, _REPEATS.get(size, 8)))


def summing(comm: Communicator, size: int) -> float:
    """Return a rank's processor seconds per byte of a sum over all ranks of `size` bytes of fp32 numbers.
    Collective.
    """
    numbers, taken = torch.zeros(size // 4), []
    for _ in range(_BATCHES):
        comm.barrier()
        start = _processor()
        for _ in range(_SUMS):
            comm.allreduce_(numbers, _KIND)
        taken.append((_processor() - start) / (_SUMS * numbers.nbytes))
    return float(np.median(taken))


@dataclass(frozen=True)
class Halo:
    """The cost of one stream of a graph's halo.

    Attributes:
        seconds, turns: its time and its number of turns.
        bytes, messages: of the rank that sends the most.
    """

    seconds: float
    bytes: int
    messages: int
    turns: int


def halo(comm: Communicator, local: LocalGraph, buffer_bytes: int, width: int) -> Halo:
    """Rows (n_p, width) fp32 streamed along the in-edges, and nothing computed with them. Collective."""
    adjacency, rows = local.inward, torch.ones(local.num_owned, width)
    stream = Stream(adjacency.own, adjacency.halo, adjacency.plan, HaloBuffers(buffer_bytes), comm)
    turns = 0

    def once() -> None:
        nonlocal turns
        turns = sum(1 for _ in stream(Rows(rows), _KIND)) - 1

    once()
    comm.ledger.take()
    once()
    entry = comm.ledger.take().get(_KIND)
    mine = torch.tensor([entry.bytes_sent, entry.messages] if entry else [0, 0])
    size, messages = comm.allreduce_(mine, "control", "max").tolist()
    return Halo(_slowest(comm, once, _HALO_REPEATS), int(size), int(messages), turns)


def _slowest(comm: Communicator, once: Callable[[], object], repeats: int) -> float:
    """The median over repeats of the seconds that the slowest rank takes. Collective."""
    once()
    times = np.empty(repeats)
    for number in range(repeats):
        comm.barrier()
        start = time.perf_counter()
        once()
        times[number] = time.perf_counter() - start
    return float(np.median(comm.allreduce_(torch.from_numpy(times), "control", "max").numpy()))


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
