"""`hpcgnn doctor` as a user starts it: its lines, what it calls wrong, and the exit code that a script goes by."""

import os
import re
import socket

import pytest

import hpcgnn
from hpcgnn.cores import physical
from hpcgnn.listing import every

from . import forked
from .launching import start

HOST = socket.gethostname()
CORES = sorted(os.sched_getaffinity(0))
LINE = re.compile(r"(ok|note|WRONG) +(.+?) {2,}(.+)")
# Rank 1 runs with other kernels than rank 0.
UNLIKE = """
import os, sys
from hpcgnn.comm.launcher import launch
os.environ["HPCGNN_KERNELS"] = "reference" if launch().rank == 1 else "auto"
from hpcgnn.__main__ import main
sys.exit(main(["doctor"]))
"""


def doctor(ranks, *program, start=start, **environment):
    """(result, {subject: (mark, what was found)}, {subject: remedy}) of a report. start: how the job is started."""
    result = start(ranks, *(program or ("-m", "hpcgnn", "doctor")), **environment)
    assert "Traceback" not in result.err + result.out, result.err
    report, _, advice = result.out.partition("\nWhat to do:\n")
    found = {match[2]: (match[1], match[3]) for match in map(LINE.fullmatch, report.splitlines()) if match}
    remedies = dict(line.strip().split(": ", 1) for line in advice.splitlines() if line.startswith("  "))
    assert remedies.keys() == {subject for subject, (mark, _) in found.items() if mark != "ok"}
    return result, found, remedies


@pytest.fixture(scope="module")
def alone():
    """On one rank, without a launcher."""
    return doctor(0)


def test_a_sound_installation(alone):
    result, found, _ = alone
    assert result.code == 0 and result.out.splitlines()[-1] == "all is well"
    assert result.out.splitlines()[0] == f"hpcgnn {hpcgnn.__version__} on 1 rank, hosts: {HOST}"
    assert "WRONG" not in {mark for mark, _ in found.values()}


def test_what_is_looked_at(alone):
    _, found, _ = alone
    assert list(found)[:2] == ["transport", "ring"], "what ranks do together comes first"
    assert {"python", "packages", "HDF5", "threads", "cores", "kernels", "OpenMP", "bf16", "allocator"} <= found.keys()
    assert "thread level MULTIPLE, 1 ranks on the first node" in found["transport"][1]
    assert found["ring"] == (
        "ok",
        "one rank, no neighbour; start it as `mpiexec -n 4 hpcgnn doctor` to test messages",
    )
    siblings = f"; hardware threads of {physical(CORES)} cores" if physical(CORES) < len(CORES) else ""
    assert found["cores"][1] == f"{len(CORES)} usable of {os.cpu_count()}: {every(CORES)}{siblings}"
    assert found["threads"] == ("ok", "1 per rank, torch uses 1")
    assert found["packages"][1].startswith(f"hpcgnn {hpcgnn.__version__}, torch ")


def test_several_ranks_pass_messages_and_make_one_report():
    ranks = 1 + len(CORES)
    result, found, _ = doctor(ranks)
    assert result.code == 0 and result.out.count("all is well") == 1
    assert result.out.splitlines()[0] == f"hpcgnn {hpcgnn.__version__} on {ranks} ranks, hosts: {HOST}"
    assert found["ring"] == ("ok", f"{ranks} ranks passed 1 MiB around")
    assert not [subject for subject in found if "(rank" in subject], "what is alike is said once"


def test_a_rank_that_differs_is_named():
    result, found, remedies = doctor(2, "-c", UNLIKE, start=forked.start)
    subject = f"kernels (rank 1, {HOST})"
    assert found[subject] == ("note", "pure torch, many times slower: HPCGNN_KERNELS=reference")
    assert "install a C compiler" in remedies[subject]
    assert result.code == 0, "slow is not wrong"


def test_slow_kernels_and_shared_cores_are_remarks():
    result, found, remedies = doctor(
        0, start=forked.start, HPCGNN_KERNELS="reference", SLURM_CPUS_PER_TASK=str(len(CORES) + 1)
    )
    assert result.code == 0 and result.out.splitlines()[-1] == "all is well"
    assert found["kernels"][0] == found["cores"][0] == "note"
    assert "--threads" in remedies["cores"]


def test_without_a_library_of_mpi_the_rest_is_reported():
    result, found, remedies = doctor(0, MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert result.code == 1 and result.out.splitlines()[-1] == "something is wrong"
    assert result.out.splitlines()[0] == f"hpcgnn {hpcgnn.__version__} on host {HOST}, without MPI"
    assert found["transport"] == ("WRONG", "cannot be used") and "/nowhere/libmpi.so" in remedies["transport"]
    assert found["kernels"][0] == "ok" and "ring" not in found
