"""What a page fault costs on this machine, now: fresh memory, touched page by page."""

import mmap
import resource
import time

_PAGES = 8192


def fault_seconds():
    """(wall, processor) seconds of one minor fault of a small page; None for both where the kernel counts none."""
    size = _PAGES * mmap.PAGESIZE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        start = time.perf_counter(), time.thread_time()
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
        wall, cpu = time.perf_counter() - start[0], time.thread_time() - start[1]
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        # The second time there is no fault: what is left is the loop.
        start = time.perf_counter(), time.thread_time()
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 2
        wall, cpu = wall - (time.perf_counter() - start[0]), cpu - (time.thread_time() - start[1])
    finally:
        memory.close()
    return (max(0.0, wall) / faults, max(0.0, cpu) / faults) if faults else (None, None)
