"""A rank of 32 is killed or stopped: what the watchdog promises must hold on many ranks, here many more than cores."""

import os
import re

import pytest

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from . import harness
from .harness import Injection

pytestmark = pytest.mark.slow

RANKS, VICTIM = 32, 17
# Seconds of the watchdog, and of the launcher's end, on cores that thirty other processes want: beside other tests MPI
# alone starts for more than ten.
_WATCHDOG, _PATIENCE = 40, 30


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "graph.h5"
    generate_graph("planted", path, Spec(nodes=3200, degree=6, features=16, classes=4, seed=3))
    partition_graph(path, [RANKS], num_clusters=128)
    return path


@pytest.fixture(scope="module")
def server():
    with harness.nursery() as path:
        yield path


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_rank_of_many_is_found_and_named(graph, server, fault, tmp_path):
    injection = Injection("step", fault, VICTIM, RANKS, 2)
    outcome = harness.start(injection, graph, tmp_path / "run", server, "--watchdog", _WATCHDOG, limit=240)
    assert outcome.happened and not harness.complaint(injection, outcome, tmp_path / "run"), outcome.text
    print(f"{fault}: the job ended {outcome.since:.1f} s after it")
    if fault == "stop":
        assert re.search(rf"Did not arrive: rank {VICTIM} \({os.uname().nodename}", outcome.text), outcome.text
        assert outcome.text.count("the job ends.") == 1, "one rank says it"
        assert outcome.text.count("stands:") <= 12, "some show their stacks, not all"
        assert outcome.since > _WATCHDOG
    assert outcome.since < _PATIENCE + (_WATCHDOG if fault == "stop" else 0), outcome.text
