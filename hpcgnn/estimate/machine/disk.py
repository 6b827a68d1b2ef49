"""The speed of a node's local disk: a job with `--memory` waits for it if it cannot hide it behind its work."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import torch

from hpcgnn import cores
from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import ScratchError
from hpcgnn.estimate.machine.machine import Disk
from hpcgnn.memory.arena import Arena
from hpcgnn.memory.scratch import REQUEST, Scratch, free_bytes

# Bytes that a rank has on their way at a time, in two pieces, as a job has the tensor at work and the next one.
_PIECE = 8 * REQUEST


def measure_disk(folder: str, nbytes: int, comm: Communicator) -> Disk:
    """Measure the rates of this node's disk. Collective over the node.

    All ranks together write scratch files and then read them, as a job does: past the page cache, in pieces with
    checksums.

    Args:
        folder: a folder on the disk.
        nbytes: bytes to write.
        comm: communicator of the node.

    Raises:
        ScratchError: the folder cannot be used.
    """
    count = max(1, nbytes // (_PIECE * comm.size))
    with comm.together("making a scratch file"):
        need = count * _PIECE * comm.size
        if free_bytes(folder) < need:
            raise ScratchError(
                f"--scratch {folder}: expected a directory with {need / 2**30:.2f} GiB free to be measured with, got "
                f"{free_bytes(folder) / 2**30:.2f} GiB; choose another one, or less (--scratch-size)"
            )
        scratch = Scratch(folder, ScratchError, cores.use_all)
    pieces = [Arena().pages(_PIECE) for _ in range(2)]
    for piece in pieces:
        piece.view(torch.int64).random_()  # a file system may keep nothing of zeros
    places = [scratch.place(_PIECE) for _ in range(count)]
    sums: list[list[int]] = []
    comm.barrier()
    with comm.together("writing to the scratch file"):
        begun = time.perf_counter()
        for done in _in_turn(count, lambda number: scratch.write(pieces[number % 2], _PIECE, places[number], True)):
            sums.append(scratch.result(done) or [])
        write = time.perf_counter() - begun
    with comm.together("reading the scratch file"):
        begun = time.perf_counter()
        for done in _in_turn(
            count, lambda number: scratch.fill(pieces[number % 2], _PIECE, places[number], sums[number])
        ):
            scratch.result(done)
        read = time.perf_counter() - begun
    slowest = comm.allreduce_(torch.tensor([read, write], dtype=torch.float64), "plan", "max")
    return Disk(*(count * _PIECE * comm.size / slowest).tolist())


def _in_turn(count: int, begin: Callable[[int], Future]) -> Iterator[Future]:
    """Yield the results of begin(number), one after another, with two under way at a time."""
    under_way: deque[Future] = deque()
    for number in range(count):
        if len(under_way) == 2:
            yield under_way.popleft()
        under_way.append(begin(number))
    yield from under_way
