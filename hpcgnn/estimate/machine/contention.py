"""The cost of ranks to each other, on a shared core and on cores of their own.

Ranks on a shared core push each other's rows out of the caches in turn. Ranks on cores of their own share memory and
heat. All ranks run the steps of a model. They repeat them while a second process per rank reads random rows on the
rank's cores. At last one rank runs them while the others sleep. The two factors of processor seconds are numbers of the
machine file.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from hpcgnn.comm.communicator import Communicator

_STEPS = 5
_READY = "ready"


def sharing_factors(step: Callable[[], object], comm: Communicator) -> tuple[float, float]:
    """How many times the processor seconds `step` takes where two processes share each core, at least 1; and on rank 0
    while the others sleep, at most 1. Collective.
    """
    usual = _least(step, comm)
    with _neighbour():
        shared = _least(step, comm)
    longest = max(comm.allgather_object(usual))
    comm.barrier()
    alone = usual
    if comm.rank > 0:
        time.sleep(2 * (_STEPS + 1) * longest)  # a rank that waits for a message may take its core
    elif comm.size > 1:
        alone = min(_seconds(step) for _ in range(_STEPS))
    return max(1.0, shared / usual), comm.broadcast_object(min(1.0, alone / usual))


def _least(step: Callable[[], object], comm: Communicator) -> float:
    """The least processor seconds of a step of this thread, while all ranks make one."""
    times = []
    step()
    for _ in range(_STEPS):
        comm.barrier()
        times.append(_seconds(step))
    return min(times)


def _seconds(step: Callable[[], object]) -> float:
    start = time.thread_time()
    step()
    return time.thread_time() - start


@contextlib.contextmanager
def _neighbour() -> Iterator[None]:
    """During the body, a second process reads random rows on this process's cores."""
    command = [sys.executable, "-P", "-m", "hpcgnn.estimate.machine.contention"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != _READY:
                raise RuntimeError("the process that shares a core with this rank did not start")
            yield
        finally:
            process.kill()


def _read_rows() -> None:
    """Be the neighbour until the other end of the standard input is gone."""
    import torch

    from hpcgnn import kernels

    torch.set_num_threads(1)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    x, y = torch.ones(16_000, 256), torch.empty(1024, 256)
    indptr = torch.arange(0, 1024 * 16 + 1, 16)
    indices = torch.randint(len(x), (1024 * 16,), dtype=torch.int32)
    kernels.gather(y, x, indptr, indices)
    print(_READY, flush=True)
    while True:
        kernels.gather(y, x, indptr, indices)


if __name__ == "__main__":
    _read_rows()
