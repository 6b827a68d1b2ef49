"""The cores of a process: read before OpenMP binds the main thread, or by OpenMP's places; hardware threads; NUMA."""

import json
import os

import pytest

from hpcgnn import cores
from hpcgnn.report.read import read_runs
from hpcgnn.word_list import every

from ..launching import start

CORES = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(cores.physical(CORES) < 2, reason="needs two cores")
# Two of the variables that make libgomp bind threads, as sites set them.
BOUND = {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close", "OMP_NUM_THREADS": "2"}
# What a script finds that has imported torch already.
LATE = """
import os
import torch
before = os.sched_getaffinity(0)
from hpcgnn import cores
print(sorted(before), sorted(cores.usable()), sorted(os.sched_getaffinity(0)))
with cores.all_used():
    print(sorted(os.sched_getaffinity(0)))
print(sorted(os.sched_getaffinity(0)))
"""
# A rank trains, and tells before it ends what the kernel says of its threads.
TRAINING = """
import json, sys, threading
from hpcgnn.comm.session import Session
from hpcgnn.__main__ import main
from hpcgnn.comm.launcher import launch
def cores_of(thread):
    with open(f"/proc/self/task/{thread.native_id}/status") as status:
        return next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))
def finish(session, before=Session.finish):
    seen = {thread.name: cores_of(thread) for thread in threading.enumerate()} | {"crowding": session.crowding}
    with open(f"{sys.argv[1]}/{launch().rank}.json", "w") as file:
        json.dump(seen, file)
    before(session)
Session.finish = finish
sys.exit(main(["train", *sys.argv[2:]]))
"""


@needs_two
def test_a_rank_with_bound_threads_has_all_of_its_cores(tmp_path, graph):
    """Two threads on two cores: nothing is shared, whatever cores the kernel reports for the main thread."""
    words = ["--graph", graph, "--run-dir", tmp_path / "run", "--hidden", 8, "--epochs", 2, "--layers", 2]
    done = start(0, "-c", TRAINING, tmp_path, *words, **BOUND)
    assert done.code == 0, done.err
    log, seen = (done.out + done.err).splitlines(), json.loads((tmp_path / "0.json").read_text())
    bound = seen["MainThread"].replace("-", ",").split(",")  # of two cores: first and last of a range
    assert len(bound) < len(CORES), "OpenMP binds the main thread, or this test shows nothing"
    assert seen["crowding"] == 2 / len(CORES)
    assert [rank["cores"] for rank in read_runs([tmp_path / "run"])[0][0].ranks] == [CORES]
    assert [line for line in log if "rank 0 on cores" in line][0].endswith(f"rank 0 on cores {every(CORES)}")
    assert not [line for line in log if "ranks share cores" in line or "OpenMP binds" in line]


@needs_two
def test_a_script_that_has_torch_already_finds_its_cores():
    done = start(0, "-c", LATE, **BOUND)
    assert done.code == 0, done.err
    first, inside, after = done.out.splitlines()
    bound = first[: first.index("]") + 1]
    assert first == f"{bound} {CORES} {bound}" and inside == str(CORES) and after == bound
    assert cores.physical(json.loads(bound)) == 1


def tree(root, files):
    """Files of the kernel's below a root: {path: text}."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("siblings", ["{0},{1}", "{0}-{1}"])
def test_hardware_threads_of_a_core_count_once(tmp_path, siblings):
    """Four cores of two hardware threads, listed or as ranges of neighbours."""
    far = "," in siblings
    for cpu in range(8):
        pair = (cpu % 4, cpu % 4 + 4) if far else (cpu & ~1, cpu | 1)
        tree(tmp_path, {f"cpu{cpu}/topology/thread_siblings_list": siblings.format(*pair) + "\n"})
    assert cores.physical(range(8), tmp_path) == 4
    assert cores.physical({0, 4 if far else 1}, tmp_path) == 1 and cores.physical({0, 2, 5}, tmp_path) == 3
    assert cores.physical({0, 9}, tmp_path) == 2, "of core 9 nothing is known"


def test_domains_of_cores(tmp_path):
    """Two domains of two cores each, with their hardware threads, and one of memory alone."""
    files = {"node0/cpulist": "0-1,4-5\n", "node1/cpulist": "2-3,6-7\n", "node10/cpulist": "\n", "online": "0-1"}
    root = tree(tmp_path, files)
    assert cores.domains_of(range(8), root) == [0, 1]
    assert cores.domains_of({2, 7}, root) == [1] and cores.domains_of({8}, root) == []
    assert cores.domains_of({0}, tmp_path / "absent") == []
