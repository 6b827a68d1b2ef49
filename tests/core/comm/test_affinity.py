"""The line of the log about the cores of the ranks: the cores that the kernel allows them, and who shares."""

import os
import socket

import pytest

from hpcgnn.app.remarks import CROWDED, describe_affinity
from hpcgnn.comm import SoloCommunicator
from hpcgnn.cores import Binding
from hpcgnn.listing import every

HOST = socket.gethostname()
CORES = sorted(os.sched_getaffinity(0))


class Ranks(SoloCommunicator):
    """Rank 0 of several; each rank has sent its host and cores. Optional: the cores to which OpenMP has bound its main
    thread, and its NUMA domains.
    """

    def __init__(self, *told):
        super().__init__()
        self.size, self.told = len(told), [self._whole(*each) for each in told]

    @staticmethod
    def _whole(host, cores, main=(), domains=(0,)):
        return host, Binding(frozenset(cores), frozenset(main) or frozenset(cores)), list(domains)

    def allgather_object(self, value):
        return self.told


def test_one_rank_is_on_the_cores_that_the_kernel_gives():
    lines = [f"{HOST}: rank 0 on cores {every(CORES)}"]
    assert describe_affinity(SoloCommunicator(), len(CORES)) == (lines, [])
    assert describe_affinity(SoloCommunicator(), len(CORES) + 1) == (lines, [CROWDED])


SEVERAL = ("a", range(8), (), (0, 1))  # NUMA domains
HINT = "rank 0-1 on cores of NUMA domains 0-1: a rank for each domain would read near memory only"
BOUND = [("a", range(24), [0]), ("a", range(24, 48), [24])]  # the main thread of each by OpenMP


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
        ([SEVERAL] * 2 + [("b", range(8))], 1, ["a: rank 0-1 on cores 0-7", "b: rank 2 on cores 0-7", HINT], False),
    ],
)
def test_who_runs_where_and_who_shares_cores(told, threads, lines, crowded):
    found, warnings = describe_affinity(Ranks(*told), threads)
    assert warnings == [CROWDED] * crowded and lines in (None, found)


def test_main_threads_that_openmp_has_bound_to_one_core_are_named():
    """Ranks that no launcher has bound: OpenMP takes the same first core for each."""
    lines, warnings = describe_affinity(Ranks(*[("a", range(24), [0])] * 2, ("b", range(24), [0])), 12)
    assert lines == ["a: rank 0-1 on cores 0-23", "b: rank 2 on cores 0-23"]
    assert len(warnings) == 2 and warnings[1] == CROWDED
    assert warnings[0].startswith("a: OpenMP binds the main threads of rank 0-1 to core 0: ")
