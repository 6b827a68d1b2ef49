"""The kernel's measurements of this process's memory. Imports next to nothing, since it runs before torch is loaded,
and before and after MPI starts.
"""

import contextlib
import ctypes
import sys
from collections.abc import Iterable
from mmap import PAGESIZE

# /proc/self/pagemap has eight bytes for each page; it is read in parts, so that reading takes no memory.
_ENTRY, _AT_ONCE = 8, 1 << 20
_HIGHEST = _ENTRY - 1 if sys.byteorder == "little" else 0


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
