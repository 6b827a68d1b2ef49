"""The kernel's measurements of this process's memory. Imports next to nothing, since it runs before torch is loaded,
and before and after MPI starts.
"""

import contextlib
import ctypes
from collections.abc import Sequence


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


def mapped_bytes(addresses: Sequence[int]) -> list[int]:
    """Resident bytes of the mappings that begin at these addresses; 0 where the kernel does not say."""
    if not addresses:  # the file has a record for each of some thousand mappings
        return []
    found, at = dict.fromkeys(addresses, 0), -1
    with contextlib.suppress(OSError), open("/proc/self/smaps") as file:
        for line in file:
            name, _, rest = line.partition(" ")
            if not name.endswith(":"):
                at = int(name.partition("-")[0], 16)
            elif name == "Rss:" and at in found:
                found[at] = int(rest.split()[0]) * 1024
    return [found[address] for address in addresses]
