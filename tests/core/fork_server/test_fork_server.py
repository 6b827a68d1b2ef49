"""Ranks that are forked from one process of the node (`HPCGNN_FORK_SERVER=1`) equal ranks that start by themselves."""

import os

import pytest

from hpcgnn.fork_server import ranks_to_fork

from .. import launching

# A rank by what `hpcgnn` does first, and then `act`. Nothing may be kept from before: the fork has rank 0's.
PROGRAM = """
import os, re, signal, sys, time
from hpcgnn import fork_server
from hpcgnn.__main__ import load_all
started, heard = os.getpid(), []
fork_server.enter(load_all, lambda: signal.signal(signal.SIGUSR1, lambda *_: heard.append(1)))
load_all()
from mpi4py import MPI
MPI.Init()
world = MPI.COMM_WORLD
rank = world.rank
pages = open("/proc/self/smaps_rollup").read()
private = sum(map(int, re.findall(r"Private_\\\\w+:\\\\s+(\\\\d+)", pages))) / 1024
forked = os.getpid() != started
from hpcgnn.memory.resident import common_bytes
parents, common = world.allgather(os.getppid()), common_bytes() / 2**20
facts = forked, private, common, sys.argv[1:], len(set(parents)), len(os.sched_getaffinity(0))
said = world.allgather((world.rank, *facts))
print(said, flush=True) if world.rank == 0 else None
{act}
MPI.Finalize()
"""


def program(ranks, *arguments, act="", **environment):
    text = PROGRAM.replace("\\\\", "\\").format(act=act)
    return launching.start(ranks, "-c", text, *arguments, HPCGNN_FORK_SERVER="1", **environment)


def ranks_of(result):
    return eval(result.out.splitlines()[0])


# Signals are sent to what the launcher has started, as it sends them. A code is rank 0's, who leaves last.
SIGNALS = """
end = time.monotonic() + 30
if rank == 0:
    for each in os.listdir("/proc"):
        try:
            words = open(f"/proc/{each}/cmdline", errors="replace").read().split(chr(0))
            ours = "TEST_MARK=this one" in open(f"/proc/{each}/environ", errors="replace").read()
        except OSError:
            continue
        if ours and any(word.endswith("proxy.py") for word in words):
            os.kill(int(each), signal.SIGUSR1)
while not heard and time.monotonic() < end:
    time.sleep(0.01)
total = world.allreduce(len(heard))
print("heard", total, flush=True) if rank == 0 else None
MPI.Finalize()
time.sleep(0 if rank else 1)
sys.exit(0 if rank else 7)
"""


def test_ranks_share_what_is_imported_hear_signals_and_return_their_code():
    """By themselves each has some 150 MiB of its own; MPI has some 10 once it has begun."""
    result = program(3, "first", "second", act=SIGNALS, TEST_MARK="this one")
    assert result.code == 7, result.err
    for number, (rank, is_fork, private, common, arguments, parents, cores) in enumerate(ranks_of(result)):
        assert rank == number and is_fork and arguments == ["first", "second"] and parents == 1 and cores > 0
        assert private < 60 and common > 100
    assert "heard 3" in result.out


@pytest.mark.parametrize(
    "act",
    [
        "os.kill(os.getpid(), 9) if rank == 1 else time.sleep(60)",
        "os.kill(os.getppid(), 9) if rank == 1 else None; time.sleep(60)",
    ],
    ids=["rank", "server"],
)
def test_a_job_ends_with_a_process_that_is_killed(act):
    result = program(2, act=act)
    assert result.code in (9, 137), (result.code, result.err)
    assert result.seconds < 50


OF_TWO = {"HPCGNN_FORK_SERVER": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HPCGNN_FORK_SERVER": "yes"}, "HPCGNN_FORK_SERVER is 'yes', expected 0 or 1"),
        ({"HPCGNN_FORK_SERVER": "0"}, None),
        ({"MPI_LOCALNRANKS": "1"}, None),
        ({"MPI_LOCALNRANKS": ""}, "the launcher does not say how many ranks this node has"),
        ({}, "the launcher's process is not known"),
        ({"OMP_PROC_BIND": "close"}, "OMP_PROC_BIND is set, so OpenMP would bind all ranks to the cores of the first"),
    ],
)
def test_where_ranks_start_by_themselves(variables, expected, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("PMI", "HYDRA", "MPI", "OMPI", "SLURM", "OMP_P"))]:
        monkeypatch.delenv(name)
    for name, value in (OF_TWO | variables).items():
        monkeypatch.setenv(name, value)
    assert ranks_to_fork() == expected
