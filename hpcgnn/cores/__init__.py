"""The cores that this process may run on, their hardware threads, their NUMA domains, and who shares them.

An OpenMP runtime that binds threads (OMP_PLACES, OMP_PROC_BIND) binds the main thread too: libgomp does so when torch
is imported. From then on the kernel reports a single core for the main thread, and for the threads and processes it
starts. So the cores are read once, if possible before torch is imported. Otherwise the places of the runtime are added.
Helper threads of the main thread return to all of the cores.

The numbers of cores are the kernel's, which counts every hardware thread.
"""

import contextlib
import ctypes
import os
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")


@cache
def usable() -> frozenset[int]:
    """Return the cores that the launcher gave this process. Later calls return the result of the first.

    Call it before torch is imported, or on the main thread.
    """
    return bound_to() | _places_of_openmp()


def bound_to() -> frozenset[int]:
    """The cores that the calling thread may run on now."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))  # no Linux: reports are made there


def use_all() -> None:
    """Let the calling thread run on all cores of the process, whatever the thread that started it is bound to."""
    with contextlib.suppress(OSError, AttributeError):  # a job's cores were taken away, or this is no Linux
        os.sched_setaffinity(0, usable())


@contextlib.contextmanager
def all_used() -> Iterator[None]:
    """`use_all` while the body runs: threads that a library starts in it inherit that."""
    before = bound_to()
    use_all()
    try:
        yield
    finally:
        if before != usable():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)


def online(root: Path = CPUS) -> frozenset[int]:
    """The cores of this machine, whoever may use them. root: where the kernel describes them."""
    return frozenset(numbers_in(root / "online")) or usable()


def physical(cores: Collection[int], root: Path = CPUS) -> int:
    """Return the number of cores, with the hardware threads of a core counted once.

    Args:
        cores: numbers of cores; a core without a description counts as one.
        root: folder of the kernel's descriptions.
    """
    siblings = (numbers_in(root / f"cpu{core}" / "topology" / "thread_siblings_list") or {core} for core in cores)
    return len({min(each) for each in siblings})


def domains_of(cores: Collection[int], root: Path = NODES) -> list[int]:
    """The NUMA domains that have some of these cores, in increasing order; [] if the kernel does not tell. root: where
    it describes them.
    """
    lists = {folder.name.removeprefix("node"): folder / "cpulist" for folder in root.glob("node[0-9]*")}
    return sorted(int(number) for number, path in lists.items() if not numbers_in(path).isdisjoint(cores))


def numbers_in(path: Path) -> set[int]:
    """{0, 1, 2, 5} of a file of the kernel's that holds '0-2,5'; nothing if it cannot be read."""
    found: set[int] = set()
    with contextlib.suppress(OSError, ValueError):
        for part in filter(None, path.read_text().strip().split(",")):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


def openmp_runtimes() -> list[str]:
    """Files of the OpenMP runtimes mapped into this process (empty where /proc is missing)."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    return sorted(file for file in files if Path(file).name.startswith(("libgomp", "libomp", "libiomp")))


def _places_of_openmp() -> set[int]:
    """The cores of all places of the OpenMP runtimes that are loaded already; none if they bind no threads."""
    found: set[int] = set()
    for file in openmp_runtimes():
        with contextlib.suppress(OSError, AttributeError):
            runtime = ctypes.CDLL(file)
            for place in range(runtime.omp_get_num_places()):
                numbers = (ctypes.c_int * runtime.omp_get_place_num_procs(place))()
                runtime.omp_get_place_proc_ids(place, numbers)
                found |= set(numbers)
    return found


class Binding(NamedTuple):
    """The cores of a rank. Threads for a core decide how ranks wait, and whether a time means anything.

    Attributes:
        cores: cores that it may use.
        main: the cores to which OpenMP has bound its main thread; all if it has not.
    """

    cores: frozenset[int]
    main: frozenset[int]

    @classmethod
    def of_this_rank(cls) -> "Binding":
        """To be called by the main thread."""
        return cls(usable(), bound_to() & usable() or usable())

    @property
    def by_openmp(self) -> bool:
        """Whether OpenMP has bound the main thread."""
        return self.main != self.cores

    def sharers(self, near: Iterable["Binding"]) -> int:
        """Return how many ranks may use one of this rank's cores.

        Ranks bound to cores of their own share them with no other; all others share their common cores.

        Args:
            near: bindings of all ranks of the node, this one's too.
        """
        return sum(not self.cores.isdisjoint(each.cores) for each in near)

    def crowding(self, threads: int, near: Iterable["Binding"]) -> float:
        """Return the threads per core; above 1 they take time from each other.

        Ranks whose main threads OpenMP has bound to the same cores compute there, even if others are free.

        Args:
            threads: threads of each rank.
            near: bindings of all ranks of the node.
        """
        near = list(near)
        spread = threads * self.sharers(near) / len(self.cores)
        if not self.by_openmp:
            return spread
        together = sum(each.by_openmp and not self.main.isdisjoint(each.main) for each in near)
        return max(spread, together / physical(self.main))
