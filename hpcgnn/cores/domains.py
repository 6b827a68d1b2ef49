"""The NUMA domains of a rank, and memory that is spread over several of them, page by page.

The kernel puts a page into the domain of the thread that touches it first. Data loaded by one thread would lie in one
domain. The threads of other domains would then read far memory through a single memory controller.
"""

import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from hpcgnn.cores import numbers_in, usable

NODES = Path("/sys/devices/system/node")

# Numbers of the kernel's calls (set_mempolicy, get_mempolicy), which the C library does not offer.
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236), "riscv64": (237, 236)}
_DEFAULT, _BIND, _INTERLEAVE, _LOCAL = 0, 2, 3, 4
# Bits of a set of domains: the kernel refuses a set smaller than its own, and reads one bit less than the given size.
_BITS, _BITS_OF_WORD = 1024, 8 * ctypes.sizeof(ctypes.c_ulong)
_Set = ctypes.c_ulong * (_BITS // _BITS_OF_WORD)


def domains_of(cores: Collection[int], root: Path = NODES) -> list[int]:
    """The NUMA domains that have some of these cores, in increasing order; [] if the kernel does not tell. root: where
    it describes them.
    """
    lists = {folder.name.removeprefix("node"): folder / "cpulist" for folder in root.glob("node[0-9]*")}
    return sorted(int(number) for number, path in lists.items() if not numbers_in(path).isdisjoint(cores))


@contextlib.contextmanager
def over_own_domains() -> Iterator[str | None]:
    """`interleaved` over the domains of this process's cores. Also a decorator of functions that load."""
    with interleaved(domains_of(usable())) as reason:
        yield reason


@contextlib.contextmanager
def interleaved(domains: Collection[int]) -> Iterator[str | None]:
    """Spread the pages that this thread touches first in the body over NUMA domains in turn.

    Threads that it starts meanwhile do the same as long as they live.

    Args:
        domains: numbers of the domains.

    Yields:
        None, or the reason why pages stay where the kernel puts them. There may be fewer than two domains, the user may
            have chosen another policy (numactl), or the kernel may refuse.
    """
    before, reason = _policy_to_change(domains)
    if before is not None:
        chosen = sorted(domains if before[0] != _BIND else set(domains) & set(before[1]))
        reason = "memory is bound to one domain" if len(chosen) < 2 else set_policy(_INTERLEAVE, chosen)
    try:
        yield reason
    finally:
        if before is not None and reason is None:
            set_policy(*before)


def _policy_to_change(domains: Collection[int]) -> tuple[tuple[int, list[int]] | None, str | None]:
    """(the policy of this thread, None), or (None, why it is not to be changed)."""
    if len(domains) < 2:
        return None, "there is one domain"
    try:
        found = policy()
    except OSError as error:
        return None, str(error.strerror)
    if found[0] not in (_DEFAULT, _BIND, _LOCAL):
        return None, "the process has a memory policy of its own"
    return found, None


def policy() -> tuple[int, list[int]]:
    """(the kernel's number of this thread's memory policy, its domains). Raises OSError if the kernel does not tell."""
    mode, domains = ctypes.c_int(), _Set()
    _call(1, ctypes.byref(mode), domains, ctypes.c_ulong(_BITS + 1), None, ctypes.c_ulong(0))
    return mode.value, [bit for bit in range(_BITS) if domains[bit // _BITS_OF_WORD] >> bit % _BITS_OF_WORD & 1]


def set_policy(mode: int, domains: Iterable[int]) -> str | None:
    """Give this thread a memory policy, by the kernel's number. Returns None, or why the kernel refuses."""
    wanted = _Set()
    for bit in domains:
        wanted[bit // _BITS_OF_WORD] |= 1 << bit % _BITS_OF_WORD
    try:
        _call(0, ctypes.c_int(mode), wanted if any(wanted) else None, ctypes.c_ulong(_BITS + 1 if any(wanted) else 0))
    except OSError as error:
        return str(error.strerror)
    return None


def _call(which: int, *arguments: Any) -> None:
    """Make a call of `_CALLS`. Raises OSError, also where the call has no known number."""
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"no call is known for {platform.machine()}")
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(numbers[which]), *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
