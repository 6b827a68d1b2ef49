"""The line of the log about the cores of the ranks: the cores that the kernel allows them, and who shares."""

import os
import socket
from types import SimpleNamespace

import pytest

from hpcgnn.app.remarks import CROWDED, describe_affinity
from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.cores import Binding
from hpcgnn.word_list import every

HOST = socket.gethostname()
CORES = sorted(os.sched_getaffinity(0))
BOUND = [("a", range(24), [0]), ("a", range(24, 48), [24])]  # the main thread of each by OpenMP


def described(told, threads):
    """What rank 0 says of ranks (host, cores, cores to which OpenMP has bound the main thread)."""
    bindings = [(host, Binding(frozenset(own), frozenset(*main) or frozenset(own))) for host, own, *main in told]
    near = [[other for there, other in bindings if there == host] for host, _ in bindings]
    said = [(host, each.cores, each.crowding(threads, others)) for (host, each), others in zip(bindings, near)]
    comm = SimpleNamespace(rank=0, gather_object=lambda value: said)
    return describe_affinity(SimpleNamespace(comm=comm, crowding=1.0))


@pytest.mark.parametrize("crowding, warnings", [(1.0, []), (1.5, [CROWDED])])
def test_one_rank_is_on_the_cores_that_the_kernel_gives(crowding, warnings):
    session = SimpleNamespace(comm=SoloCommunicator(), crowding=crowding)
    assert describe_affinity(session) == ([f"{HOST}: rank 0 on cores {every(CORES)}"], warnings)


@pytest.mark.parametrize(
    "told, threads, lines, crowded",
    [
        (  # in the order of the ranks
            [("b", [0, 1]), ("b", [2, 3]), ("a", [0, 1]), ("b", [0, 1])],
            1,
            ["b: rank 0,3 on cores 0-1, rank 1 on cores 2-3", "a: rank 2 on cores 0-1"],
            False,
        ),
        ([("a", [0, 1]), ("b", [0, 1])], 2, None, False),  # the same numbers on other hosts are other cores
        ([("a", [0, 1]), ("a", [1, 2])], 1, None, False),
        ([("a", [0, 1]), ("a", [1, 2])], 2, None, True),  # they may meet on core 1
        ([("a", [0, 1]), ("a", [2, 3])], 2, None, False),
        ([("a", [0]), ("b", [0, 1]), ("b", [0, 1])], 1, None, False),
        ([("a", [0]), ("b", [0]), ("b", [0])], 1, None, True),
        # 24 threads of a rank on its 24 cores
        (BOUND, 24, ["a: rank 0 on cores 0-23, rank 1 on cores 24-47"], False),
        (BOUND, 25, None, True),
        # Ranks that no launcher has bound: OpenMP takes the same first core for each.
        ([("a", range(24), [0])] * 2 + [("b", range(24), [0])], 12, None, True),
    ],
)
def test_who_runs_where_and_who_shares_cores(told, threads, lines, crowded):
    found, warnings = described(told, threads)
    assert warnings == [CROWDED] * crowded and lines in (None, found)
