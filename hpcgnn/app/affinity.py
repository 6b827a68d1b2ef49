"""Which cores and NUMA domains each rank has: it decides whether a time means anything, so every run logs it."""

import socket

from hpcgnn.comm.communicator import Communicator
from hpcgnn.cores import Binding, domains_of
from hpcgnn.listing import every

CROWDED = "ranks share cores: the times of this run say little; see `hpcgnn doctor`"


def describe_affinity(comm: Communicator, threads: int) -> tuple[list[str], list[str]]:
    """Describe the cores of all ranks. Collective.

    Args:
        comm: the communicator.
        threads: number of threads of each rank.

    Returns:
        On rank 0, (lines, warnings); two empty lists on the others. There is a line per host, such as 'n1: rank 0 on
            cores 0-23, rank 1 on cores 24-47', and one for ranks of several NUMA domains. Warnings name hosts with more
            threads than cores.
    """
    binding = Binding.of_this_rank()
    said = comm.allgather_object((socket.gethostname(), binding, domains_of(binding.cores)))
    if comm.rank != 0:
        return [], []
    hosts: dict[str, dict[Binding, list[int]]] = {}
    spans: dict[str, list[int]] = {}
    for rank, (host, theirs, spanned) in enumerate(said):
        hosts.setdefault(host, {}).setdefault(Binding(*theirs), []).append(rank)
        if len(spanned) > 1:
            spans.setdefault(every(spanned), []).append(rank)
    lines = [f"{host}: {_on_cores(places)}" for host, places in hosts.items()]
    lines += [
        f"rank {every(ranks)} on cores of NUMA domains {domains}: a rank for each domain would read near memory only"
        for domains, ranks in spans.items()
    ]
    return lines, [*_bound_together(hosts), *([CROWDED] if _crowded(hosts, threads) else [])]


def _on_cores(places: dict[Binding, list[int]]) -> str:
    of_cores: dict[frozenset[int], list[int]] = {}
    for binding, ranks in places.items():
        of_cores.setdefault(binding.cores, []).extend(ranks)
    return ", ".join(f"rank {every(sorted(ranks))} on cores {every(sorted(own))}" for own, ranks in of_cores.items())


def _bound_together(hosts: dict[str, dict[Binding, list[int]]]) -> list[str]:
    """A line for each host and set of cores to which OpenMP has bound the main threads of several ranks."""
    together: dict[tuple[str, frozenset[int]], list[int]] = {}
    for host, places in hosts.items():
        for binding, ranks in places.items():
            if binding.by_openmp:
                together.setdefault((host, binding.main), []).extend(ranks)
    return [
        f"{host}: OpenMP binds the main threads of rank {every(sorted(ranks))} to core {every(sorted(main))}: let the "
        "launcher bind ranks (srun --cpu-bind=cores, mpiexec -bind-to core), or unset OMP_PROC_BIND and OMP_PLACES"
        for (host, main), ranks in together.items()
        if len(ranks) > 1
    ]


def _crowded(hosts: dict[str, dict[Binding, list[int]]], threads: int) -> bool:
    for places in hosts.values():
        near = [binding for binding, ranks in places.items() for _ in ranks]
        if any(binding.crowding(threads, near) > 1 for binding in places):
            return True
    return False
