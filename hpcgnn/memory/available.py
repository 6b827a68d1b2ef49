"""Memory that the machine and its control groups leave. Imports next to nothing, like resident.py."""

import contextlib
import os
import re
from pathlib import Path

_TABLE = Path("/proc/self/cgroup")
_GROUPS, _OLD_GROUPS = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
_SHARED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


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


def huge_pages(setting: Path = _SHARED) -> bool:
    """Return whether memory that processes share can have huge pages here. setting: the kernel's file."""
    try:
        return not {"[never]", "[deny]"} & set(setting.read_text().split())
    except OSError:  # a kernel without them
        return False
