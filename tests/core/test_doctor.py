"""`hpcgnn doctor` as a user starts it: its lines, the faults it names, and the exit code that a script goes by."""

import os
import re
import socket

import hpcgnn
from hpcgnn.__main__ import SPINS, WAIT_VARIABLES
from hpcgnn.word_list import every

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
    """(result, {subject: (mark, finding)}, {subject: remedy}) of a report. start: how the job is started."""
    result = start(ranks, *(program or ("-m", "hpcgnn", "doctor")), **environment)
    assert "Traceback" not in result.err + result.out, result.err
    report, _, advice = result.out.partition("\nWhat to do:\n")
    found = {match[2]: (match[1], match[3]) for match in map(LINE.fullmatch, report.splitlines()) if match}
    remedies = dict(line.strip().split(": ", 1) for line in advice.splitlines() if line.startswith("  "))
    assert remedies.keys() == {subject for subject, (mark, _) in found.items() if mark != "ok"}
    return result, found, remedies


def test_a_sound_installation(monkeypatch):
    """On one rank without a launcher, and without a setting of how idle threads wait; OpenMP prints its settings."""
    for name in WAIT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    result, found, _ = doctor(0, OMP_DISPLAY_ENV="verbose")
    lines = result.out.splitlines()
    assert result.code == 0 and lines[0] == f"hpcgnn {hpcgnn.__version__} on 1 rank, hosts: {HOST}"
    assert lines[-1] == "all is well" and "WRONG" not in {mark for mark, _ in found.values()}
    assert list(found)[:3] == ["transport", "ring", "cores"], "what ranks do together comes first"
    assert "thread level MULTIPLE, 1 ranks on the first node" in found["transport"][1]
    assert found["ring"] == ("ok", "one rank, no neighbour; start it as `mpiexec -n 4 hpcgnn doctor` to test messages")
    assert found["cores"][1].startswith(f"1 threads per rank; {HOST}: rank 0 on cores {every(CORES)}")
    assert found["packages"][1].startswith(f"hpcgnn {hpcgnn.__version__}, python ")
    assert "kernels" in found
    assert found["OpenMP"][1].endswith(f"OMP_WAIT_POLICY=passive, GOMP_SPINCOUNT={SPINS}")
    if "libgomp" in found["OpenMP"][1]:  # what the runtime itself says that it has read
        assert f"GOMP_SPINCOUNT = '{SPINS}'" in result.err


def test_several_ranks_pass_messages_and_make_one_report():
    """More ranks than cores are a remark."""
    ranks = 1 + len(CORES)
    result, found, remedies = doctor(ranks, start=forked.start)
    assert result.code == 0 and result.out.count("all is well") == 1
    assert result.out.splitlines()[0] == f"hpcgnn {hpcgnn.__version__} on {ranks} ranks, hosts: {HOST}"
    assert found["ring"] == ("ok", f"{ranks} ranks passed 1 MiB around")
    assert found["cores"][0] == "note" and "--threads" in remedies["cores"]
    assert not [subject for subject in found if "(rank" in subject], "what is alike is said once"


def test_a_rank_that_differs_is_named():
    result, found, remedies = doctor(2, "-c", UNLIKE, start=forked.start)
    subject = f"kernels (rank 1, {HOST})"
    assert found[subject] == ("note", "pure torch, many times slower: HPCGNN_KERNELS=reference")
    assert "install a C compiler" in remedies[subject]
    assert result.code == 0, "slow is not wrong"


def test_without_a_library_of_mpi_the_rest_is_reported():
    result, found, remedies = doctor(0, MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert result.code == 1 and result.out.splitlines()[-1] == "something is wrong"
    assert result.out.splitlines()[0] == f"hpcgnn {hpcgnn.__version__} on host {HOST}, without MPI"
    assert found["transport"] == ("WRONG", "cannot be used") and "/nowhere/libmpi.so" in remedies["transport"]
    assert found["kernels"][0] == "ok" and "ring" not in found
