"""Which cores each rank may run on: what decides whether a time means anything, said in the log of every run."""

import os
import socket

from hpcgnn.comm.communicator import Communicator
from hpcgnn.listing import every


def describe_affinity(comm: Communicator, threads: int) -> tuple[list[str], bool]:
    """(lines such as 'n1: rank 0 on cores 0-23, rank 1 on cores 24-47', one for each host; whether more threads than
    cores compute anywhere). Collective. threads: of each rank.
    """
    hosts: dict[str, dict[tuple[int, ...], list[int]]] = {}
    for rank, (host, cores) in enumerate(
        comm.allgather_object((socket.gethostname(), sorted(os.sched_getaffinity(0))))
    ):
        hosts.setdefault(host, {}).setdefault(tuple(cores), []).append(rank)
    crowded = any(threads * _sharers(cores, places) > len(cores) for places in hosts.values() for cores in places)
    lines = [
        f"{host}: " + ", ".join(f"rank {every(ranks)} on cores {every(cores)}" for cores, ranks in places.items())
        for host, places in hosts.items()
    ]
    return lines, crowded


def _sharers(cores: tuple[int, ...], places: dict[tuple[int, ...], list[int]]) -> int:
    """How many ranks of a host may run on any of these cores. places: {cores: ranks}."""
    return sum(len(ranks) for theirs, ranks in places.items() if not set(cores).isdisjoint(theirs))
