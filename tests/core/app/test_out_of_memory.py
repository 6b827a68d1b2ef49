"""Out of memory, under a real limit of the system: a line with remedies, no traceback, no rank left waiting."""

import mmap

import numpy as np
import pytest
import torch

from hpcgnn.errors import memory_shortage
from hpcgnn.memory.arena import Arena

from ..forked import start

# Some ranks may have 60 MiB more than they have when they come to a certain function.
PROGRAM = """
import os, resource, sys
from hpcgnn.__main__ import main
from hpcgnn.app import {module}
def limited(function):
    def call(*arguments):
        if os.environ.get("PMI_RANK", "0") in {ranks!r}:
            size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (60 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        return function(*arguments)
    return call
{module}.{where} = limited({module}.{where})
sys.exit(main(["train", *{options}]))
"""


# Before the graph is read the ranks agree, so it matters whether the first one fails; later a rank ends the job itself.
TOGETHER, ALONE = ("bring_up", "StepProbe.of"), ("train", "Trainer")


@pytest.mark.parametrize(
    "module, where, ranks, limited",
    [(*TOGETHER, 2, limited) for limited in ("0", "1", "01")] + [(*ALONE, 1, "0"), (*ALONE, 2, "1")],
)
def test_a_limit(graph, tmp_path, ranks, limited, module, where):
    options = f"--graph {graph} --run-dir {tmp_path / 'run'} --model gat --heads 4 --hidden 750 --epochs 2".split()
    done = start(ranks, "-c", PROGRAM.format(ranks=limited, module=module, where=where, options=repr(options)))
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.err and "Error" not in done.err, done.err
    assert done.err.count("hpcgnn: error") == 1
    assert "out of memory: 72000000 bytes more were asked for" in done.err and "what helps: more ranks" in done.err
    if ranks == 2 and limited != "01":
        assert f"rank {limited} of 2" in done.err


def caught(function):
    with pytest.raises(Exception) as caught:
        function()
    return memory_shortage(caught.value)


def test_who_runs_out_of_memory():
    huge = 1 << 62
    more = f"out of memory: {huge} bytes more were asked for"
    assert str(caught(lambda: np.empty(huge, np.uint8))) == "out of memory: 4.00 EiB more were asked for"
    assert str(caught(lambda: torch.empty(huge, dtype=torch.uint8))) == more
    assert str(caught(lambda: Arena().empty(1 << 60, dtype=torch.int32))) == more
    assert str(caught(lambda: mmap.mmap(-1, huge))) == "out of memory: more was asked for than there is"
    assert caught(lambda: bytearray(huge)) and caught(lambda: torch.empty(huge, huge))
    assert caught(lambda: torch.empty(-3, huge)) is None, "a fault of the program keeps its traceback"
    assert caught(lambda: open("/no/such/file")) is None and caught(lambda: torch.ones(2) @ torch.ones(3)) is None
