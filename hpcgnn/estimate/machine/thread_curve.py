"""The speed of a rank's threads over one thread, and the time to wake them.

A model's steps run with 1, 2, 4, … threads, on all ranks at once, and on one rank while the others sleep. The
comparison uses the seconds inside of kernels without those of waking threads, which is the work that threads share. The
rest of a step runs on one thread (see estimate/seconds.py).
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.ops.row_tiles import TILE_ROWS, tile_rows, tiles_of

#: make(rows) -> a function that runs a step of the model on this number of rows.
Make = Callable[[int], Callable[[], object]]
_STEPS = 3
_WAKES = 200


class Curves(NamedTuple):
    """As a Machine has them: [[threads, factor or seconds], …]."""

    speed: list[list[float]]
    speed_alone: list[list[float]]
    wake: list[list[float]]


class Point(NamedTuple):
    """A measurement for one number of threads.

    Attributes:
        kernels: seconds inside of kernels in a step.
        step: seconds of the step.
        wake: seconds to wake the threads.
    """

    kernels: float
    step: float
    wake: float


def thread_curves(make: Make, cores: int, cores_of_node: int, comm: Communicator) -> Curves:
    """Measure. cores: that this rank may run on; cores_of_node: that any of its ranks may. There are enough rows for a
    tile of each thread. Collective; leaves torch with one thread.
    """
    together = thread_numbers(max(1, cores_of_node // comm.size))
    alone = thread_numbers(min(comm.allgather_object(cores)))
    step = make(TILE_ROWS * max(together + alone))
    try:
        measured = comm.allgather_object([_point(step, threads, comm.barrier) for threads in together])
        everyone = [[Point(*point) for point in points] for points in measured]
        speed = {
            threads: float(np.mean([points[0].kernels / points[at].kernels for points in everyone]))
            for at, threads in enumerate(together)
        }
        wake = {
            threads: float(np.mean([points[at].wake for points in everyone])) for at, threads in enumerate(together)
        }
        speed_alone: dict[int, float] = {}
        if comm.size > 1:
            longest = max(points[0].step for points in everyone)
            speed_alone, waking = _alone(step, alone, (_STEPS + 2) * len(alone) * longest, comm)
            wake = waking | wake
    finally:
        torch.set_num_threads(1)
    wake.pop(1)
    return Curves(*([[threads, each[threads]] for threads in sorted(each)] for each in (speed, speed_alone, wake)))


def thread_numbers(most: int) -> list[int]:
    """1, 2, 4, …, and `most`."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})


def _alone(
    step: Callable[[], object], numbers: list[int], seconds: float, comm: Communicator
) -> tuple[dict[int, float], dict[int, float]]:
    """Return ({threads: factor}, {threads: seconds to wake them}) of rank 0 while the others sleep. Collective.

    Args:
        step: runs a step.
        numbers: numbers of threads.
        seconds: approximate duration.
        comm: the communicator.
    """
    comm.barrier()
    points: dict[int, Point] = {}
    if comm.rank == 0:
        points = {threads: _point(step, threads, lambda: None) for threads in numbers}
    else:
        time.sleep(seconds)  # a rank that waits for a message may take a core
    points = {threads: Point(*point) for threads, point in comm.broadcast_object(points).items()}
    return (
        {threads: points[1].kernels / point.kernels for threads, point in points.items()},
        {threads: point.wake for threads, point in points.items()},
    )


def _point(step: Callable[[], object], threads: int, meet: Callable[[], object]) -> Point:
    """Return the Point for a number of threads of this rank: the least of several steps. meet: called before each."""
    torch.set_num_threads(threads)
    with tiles_of(tile_rows(threads)):
        step()
        wake, taken = _waking(threads), []
        for _ in range(_STEPS):
            meet()
            start = time.perf_counter()
            with _inside_of_kernels() as inside:
                step()
            net = inside["seconds"] - inside["calls"] * wake
            taken.append((max(net, inside["seconds"] / 100), time.perf_counter() - start))
    kernels_least, step_least = np.min(taken, axis=0).tolist()
    return Point(kernels_least, step_least, wake)


@contextlib.contextmanager
def _inside_of_kernels() -> Iterator[dict[str, float]]:
    """{'seconds', 'calls'} of kernels in the body."""
    found = {"seconds": 0.0, "calls": 0.0}

    @contextlib.contextmanager
    def watch(name: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        start = time.perf_counter()
        yield
        found["seconds"] += time.perf_counter() - start
        found["calls"] += 1

    with kernels.watched(watch):
        yield found


def _waking(threads: int) -> float:
    """Return the seconds of an empty parallel region of `threads` threads."""
    return max(0.0, _empty_region(threads) - _empty_region(1))


def _empty_region(threads: int) -> float:
    """The median seconds of a kernel that has a parallel region, and one edge to look at."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    indptr, indices, times = torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32), []
    for _ in range(_WAKES):
        start = time.perf_counter()
        kernels.check_block(indptr, indices, None, 1, 1)
        times.append(time.perf_counter() - start)
    torch.set_num_threads(before)
    return float(np.median(times))
