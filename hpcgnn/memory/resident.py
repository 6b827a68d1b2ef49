"""Measurements of memory: this process's by the kernel, what the machine and its control groups leave, and the
allocator's policy.

Imports next to nothing, since it runs before torch is loaded, and before and after MPI starts.
"""

import contextlib
import ctypes
import gc
import os
import re
import sys
import types
from collections import namedtuple
from collections.abc import Iterable
from mmap import PAGESIZE
from pathlib import Path

# /proc/self/pagemap has eight bytes for each page; it is read in parts, so that reading takes no memory.
_ENTRY, _AT_ONCE = 8, 1 << 20
_HIGHEST = _ENTRY - 1 if sys.byteorder == "little" else 0

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
#: From so many threads on, steps are so large and so fast that returning memory to the system counts.
MANY_THREADS = 8

#: Of malloc. mapping: bytes of the smallest tensor outside the heap. free: bytes that may be free on the heap.
Thresholds = namedtuple("Thresholds", "mapping free")
FEW, MANY = Thresholds(1 << 22, 1 << 24), Thresholds(sys.maxsize, (1 << 31) - 1)
_thresholds = FEW


def status(field: str) -> int:
    """A size from /proc/self/status, such as 'VmRSS:', in bytes; 0 where the kernel does not have it."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def give_back_heap() -> None:
    """Give free heap back to the system, where the C library can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Resident memory now."""
    return status("VmRSS:")


def common_bytes() -> int:
    """Return the resident bytes that all ranks of a node share.

    That is program code, and in a rank that a fork server has made all that was imported before.
    """
    forked = 0
    with contextlib.suppress(OSError), open("/proc/self/smaps_rollup") as file:
        forked = sum(
            int(line.split()[1]) * 1024 for line in file if line.startswith(("Shared_Clean:", "Shared_Dirty:"))
        )
    return max(status("RssFile:"), forked - shared_bytes())


def shared_bytes() -> int:
    """Resident shared memory: the MPI library passes messages through it on a node."""
    return status("RssShmem:")


class _HeapNumbers(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def heap_bytes() -> tuple[int, int]:
    """(bytes that the program has from malloc now, in pieces of any size; bytes that malloc keeps); zeros where the C
    library does not say.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = _HeapNumbers
        sizes = mallinfo().sizes
        return int(sizes[4] + sizes[7]), int(sizes[8])  # pieces with a mapping of their own, and those of the heap
    return 0, 0


def mapped_bytes(mappings: Iterable[tuple[int, int]]) -> int:
    """Resident bytes of these mappings (address, length); 0 where the kernel does not say.

    Read page by page: /proc/self/smaps would have the kernel look at all memory of the process.
    """
    found = 0
    with contextlib.suppress(OSError), open("/proc/self/pagemap", "rb", buffering=0) as file:
        for address, length in mappings:
            file.seek(address // PAGESIZE * _ENTRY)
            left = -(-length // PAGESIZE) * _ENTRY
            while left > 0 and (entries := file.read(min(left, _AT_ONCE))):
                left -= len(entries)
                # The highest bit of an entry is set where the page is there.
                found += len(entries[_HIGHEST::_ENTRY].translate(None, bytes(range(128)))) * PAGESIZE
    return found


def set_allocator_policy(threads: int = 1) -> bool:
    """Fix glibc's thresholds for a process of so many threads. Call this before the first import of torch, and again
    when the number is known.

    Large tensors then return to the system when freed. Tiles of some edges, 2 MiB each (ops/row_tiles.py, with few
    threads), stay on the heap: otherwise each tile would touch fresh pages. By default the threshold rises with every
    large freed block, and freed tensors stay on the heap. With MANY_THREADS or more all tensors stay there. One thread
    gives pages back while the others wait: that took half of the serial time of functions of edges. The function does
    not change other C libraries.

    Returns:
        whether the policy is in force.
    """
    global _thresholds
    many = threads >= MANY_THREADS
    _thresholds = MANY if many else FEW
    mappings = 0 if many else 1 << 16  # glibc's own number
    options = {_M_MMAP_MAX: mappings, _M_MMAP_THRESHOLD: FEW.mapping, _M_TRIM_THRESHOLD: _thresholds.free}
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return all([mallopt(*each) for each in options.items()])
    return False


def malloc_thresholds() -> Thresholds:
    """malloc's thresholds in this process."""
    return _thresholds


def use_threads(count: int) -> None:
    """Set the number of torch's threads, and malloc's policy for it."""
    import torch

    torch.set_num_threads(count)
    set_allocator_policy(count)


def import_torch_without_meta_kernels() -> None:
    """Import torch without `torch._meta_registrations`, which only its compiler uses. Does nothing if torch is there.

    No rank compiles anything, and the module would take memory on each rank for the whole run. A later import of the
    module works, as that for a user's plugin (nn/plugin.py).
    """
    name = "torch._meta_registrations"
    if "torch" in sys.modules:
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        import torch
    finally:
        del sys.modules[name]
    vars(torch).pop("_meta_registrations", None)


def trim_heap() -> None:
    """Return free heap to the system, after a garbage collection: a trainer is a reference cycle."""
    gc.collect()
    give_back_heap()


class PeakMemory:
    """The kernel's high-water mark of resident memory, which can be reset.

    overall: the peak since the process started. span: the peak since `begin_span`, whatever was reset in between.
    """

    def __init__(self) -> None:
        self.overall, self.span, self.was_reset = 0, 0, False

    def begin_span(self) -> bool:
        """Reset, and measure `span` from here. Returns whether the kernel allowed it."""
        allowed = self.reset()
        self.span = 0
        return allowed

    def reset(self) -> bool:
        """Start a new high-water mark at the present resident memory. Returns whether the kernel allowed it."""
        self.read()
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            self.was_reset = True
        except OSError:
            self.was_reset = False
        return self.was_reset

    def read(self) -> int:
        """The high-water mark since the last reset, in bytes."""
        peak = status("VmHWM:")
        self.overall, self.span = max(self.overall, peak), max(self.span, peak)
        return peak


_TABLE = Path("/proc/self/cgroup")
_GROUPS, _OLD_GROUPS = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


def machine_available() -> int:
    """Return the bytes still available on the machine: free memory, and caches that the kernel can drop."""
    with contextlib.suppress(OSError):
        with_cache = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if with_cache:
            return int(with_cache[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def group_limits() -> list[int]:
    """Limits of the control groups (versions 1 and 2) that this process is in, and of those above them."""
    limits: list[int] = []
    groups: list[str] = []
    with contextlib.suppress(OSError):  # a system without them
        groups = _TABLE.read_text().splitlines()
    for line in groups:
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = _OLD_GROUPS if controllers else _GROUPS
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        here = root / place.lstrip("/")
        for folder in (here, *here.parents):
            if folder != root.parent and (folder / name).is_file():
                text = (folder / name).read_text().strip()
                limits += [int(text)] if text.isdigit() else []
    return limits
