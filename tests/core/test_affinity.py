"""The line of the log that says on which cores the ranks run: what the kernel lets them run on, and who shares."""

import os
import socket

import pytest

from hpcgnn.comm import SoloCommunicator
from hpcgnn.listing import every
from hpcgnn.train.affinity import describe_affinity

from .forked import start

HOST = socket.gethostname()
CORES = sorted(os.sched_getaffinity(0))
# Arguments: threads of a rank, then the cores that each rank may run on, joined by commas.
PINNED = """
import os, sys
from hpcgnn.comm.launch import run
from hpcgnn.comm.launcher import launched_rank
from hpcgnn.train.affinity import describe_affinity
threads, cores = int(sys.argv[1]), sys.argv[2 + launched_rank()].split(",")
os.sched_setaffinity(0, map(int, cores))
def show(session):
    lines, crowded = describe_affinity(session.comm, threads)
    if session.comm.rank == 0:
        print(*lines, crowded, sep="\\n")
sys.exit(run(show, threads))
"""


class Ranks(SoloCommunicator):
    """Rank 0 of several, of which each has told its host and cores."""

    def __init__(self, *told):
        super().__init__()
        self.size, self.told = len(told), list(told)

    def allgather_object(self, value):
        return self.told


def test_one_rank_is_on_the_cores_that_the_kernel_gives():
    lines, crowded = describe_affinity(SoloCommunicator(), 1)
    assert lines == [f"{HOST}: rank 0 on cores {every(CORES)}"] and not crowded


@pytest.mark.parametrize("more, crowded", [(0, False), (1, True)])
def test_more_threads_than_cores_are_a_crowd(more, crowded):
    assert describe_affinity(SoloCommunicator(), len(CORES) + more)[1] is crowded


def pinned(threads, *cores):
    """(lines, whether crowded) of ranks that are bound to these cores; one runs without a launcher."""
    done = start(len(cores) if len(cores) > 1 else 0, "-c", PINNED, threads, *cores)
    assert done.code == 0, done.err
    *lines, crowded = done.out.splitlines()
    return lines, crowded == "True"


def test_a_process_that_is_bound_says_so():
    core = CORES[-1]
    assert pinned(1, core) == ([f"{HOST}: rank 0 on cores {core}"], False)


def test_two_ranks_on_one_core_share_it():
    core = CORES[-1]
    assert pinned(1, core, core) == ([f"{HOST}: rank 0-1 on cores {core}"], True)


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
@pytest.mark.parametrize("threads, crowded", [(1, False), (2, True)])
def test_two_ranks_on_cores_of_their_own_share_nothing(threads, crowded):
    one, other = CORES[:2]
    assert pinned(threads, one, other) == ([f"{HOST}: rank 0 on cores {one}, rank 1 on cores {other}"], crowded)


def test_a_line_for_each_host_in_the_order_of_the_ranks():
    lines, crowded = describe_affinity(Ranks(("b", [0, 1]), ("b", [2, 3]), ("a", [0, 1]), ("b", [0, 1])), 1)
    assert lines == ["b: rank 0,3 on cores 0-1, rank 1 on cores 2-3", "a: rank 2 on cores 0-1"]
    assert not crowded


@pytest.mark.parametrize(
    "told, threads, crowded",
    [
        ([("a", [0, 1]), ("b", [0, 1])], 2, False),  # the same numbers on other hosts are other cores
        ([("a", [0, 1]), ("a", [1, 2])], 1, False),
        ([("a", [0, 1]), ("a", [1, 2])], 2, True),  # they may meet on core 1
        ([("a", [0, 1]), ("a", [2, 3])], 2, False),
        ([("a", [0]), ("b", [0, 1]), ("b", [0, 1])], 1, False),
        ([("a", [0]), ("b", [0]), ("b", [0])], 1, True),
    ],
)
def test_who_shares_cores(told, threads, crowded):
    assert describe_affinity(Ranks(*told), threads)[1] is crowded
