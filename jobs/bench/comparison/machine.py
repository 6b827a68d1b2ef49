"""The machine and the packages of a comparison: a figure without these cannot be compared with another."""

import os
import platform
import subprocess
from pathlib import Path

from comparison.environments import ROOT
from hpcgnn.memory.resident import malloc_thresholds

_ALLOCATOR_VARIABLES = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_CONF", "OMP_WAIT_POLICY")


def describe_machine():
    """{cpu, cores, memory_bytes, kernel, libc, huge_pages, commit, …}; `cores` are those this comparison may use."""
    return {
        "cpu": _cpu_model(),
        "cores": sorted(os.sched_getaffinity(0)),
        "cores_of_machine": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "commit": _commit(),
    }


def describe_allocator():
    """The policy of hpcgnn, which peers get too unless the comparison says `default`, with the additions of the
    environment for all.
    """
    return {
        "mmap_threshold_bytes": malloc_thresholds().mapping,
        "variables": {name: os.environ[name] for name in _ALLOCATOR_VARIABLES if name in os.environ},
    }


def use_cores(number):
    """Bind this process, and with it all that it starts, to some cores. Returns their number."""
    chosen = sorted(os.sched_getaffinity(0))[:number]
    os.sched_setaffinity(0, chosen)
    return len(chosen)


def _cpu_model():
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit():
    """The commit of the source, marked if it has changes that are not committed."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _read(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
