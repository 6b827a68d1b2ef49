"""A rank of 32 is killed or stopped: the watchdog's promises must hold on many ranks, here many more than cores. And
thousands of steps leave memory and open files as they were: a leak of a page a step ends a run of a week.
"""

import os
import re

import numpy as np
import pytest
from core.forked import start

from . import harness
from .harness import Injection

pytestmark = pytest.mark.slow

RANKS, VICTIM = 32, 17
# Seconds of the watchdog, and of the launcher's end, on cores that thirty other processes want: beside other tests MPI
# alone starts for more than ten.
_WATCHDOG, _PATIENCE = 40, 30
STEPS = 5_000
# What an allocator rearranges in a tenth of the run; a page in every hundredth step is more. A thread's heap, the first
# use of a library or a cache that fills falls into some tenths, a leak into all: the median tells.
GROWTH_BYTES = 1 << 14
# A rank writes its resident bytes and its open files after each tenth of the steps.
PROGRAM = """
import os, resource, sys
from hpcgnn.engine.optim import Optimizer
from hpcgnn.__main__ import main
steps, step = 0, Optimizer.step
def watched(self):
    global steps
    step(self)
    steps += 1
    if steps in {looks}:
        pages = int(open("/proc/self/statm").read().split()[1])
        looked = pages * resource.getpagesize(), len(os.listdir("/proc/self/fd"))
        with open(f"{folder}/looks-" + os.environ["PMI_RANK"], "a") as file:
            print(*looked, file=file)
Optimizer.step = watched
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_rank_of_many_is_found_and_named(folder, server, fault, tmp_path):
    injection, graph = Injection("step", fault, VICTIM, RANKS, 2), folder / "graph.h5"
    outcome = harness.start(injection, graph, tmp_path / "run", server, "--watchdog", _WATCHDOG, limit=240)
    assert outcome.happened and not harness.complaint(injection, outcome, tmp_path / "run"), outcome.text
    print(f"{fault}: the job ended {outcome.since:.1f} s after it")
    if fault == "stop":
        assert re.search(rf"Did not arrive: rank {VICTIM} \({os.uname().nodename}", outcome.text), outcome.text
        assert outcome.text.count("the job ends.") == 1, "one rank says it"
        assert outcome.text.count("stands:") <= 12, "some show their stacks, not all"
        assert outcome.since > _WATCHDOG
    assert outcome.since < _PATIENCE + (_WATCHDOG if fault == "stop" else 0), outcome.text


def test_memory_and_open_files_stay_as_they_are(folder, tmp_path):
    """With an evaluation and a checkpoint after each hundredth of the steps."""
    program = PROGRAM.format(looks=range(STEPS // 10, STEPS + 1, STEPS // 10), folder=tmp_path)
    seldom = ("--eval-every", STEPS // 100, "--checkpoint-every", STEPS // 100)
    words = ("train", "--graph", folder / "graph.h5", "--run-dir", tmp_path / "run", "--hidden", 8, "--layers", 2)
    done = start(2, "-c", program, *words, "--epochs", STEPS, *seldom, limit=600)
    assert done.code == 0, done.err
    for rank in (0, 1):
        resident, files = np.loadtxt(tmp_path / f"looks-{rank}", dtype=int, unpack=True)
        assert np.median(np.diff(resident)) <= GROWTH_BYTES and files.max() == files[0]
