"""Jobs of two nodes of two ranks, of which one rank fails in the middle of an exchange between nodes: they end."""

import pytest

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from . import harness
from .harness import Injection

# Attention returns rows, and small buffers make many turns, so that ranks of a node wait for each other's lanes.
OPTIONS = ("--comm", "mpi", "--model", "gat", "--intra-node", "shared", "--halo-buffer", "0.02")
CASES = (
    Injection("forward", "kill", 1, 4, 9),
    Injection("meeting", "kill", 2, 4, 120),
    Injection("meeting", "stop", 3, 4, 130),
    Injection("backward", "raise", 2, 4, 3),
    Injection("meeting", "pause", 0, 4, 140),  # the run goes on to its end
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a graph, and the run that all tests continue."""
    path = tmp_path_factory.mktemp("faults-between-nodes")
    generate_graph("planted", path / "graph.h5", Spec(nodes=600, degree=6, features=16, classes=4, seed=3))
    partition_graph(path / "graph.h5", [4], num_clusters=64)
    return path


@pytest.fixture(scope="module")
def server():
    with harness.nursery() as path:
        yield path


@pytest.mark.parametrize(
    "injection",
    [pytest.param(each, marks=[pytest.mark.slow] * (each.stage != "meeting")) for each in CASES],
    ids=str,
)
def test_a_fault(folder, server, injection):
    run = folder / "run"
    outcome = harness.start(injection, folder / "graph.h5", run, server, *OPTIONS, per_node=2)
    assert outcome.happened, outcome.text
    assert not harness.complaint(injection, outcome, run), outcome.text


def test_after_all_of_it_the_curve_is_that_of_a_run_without_faults(folder, server):
    calm = Injection("import", "none", 0, 4)
    for name in ("run", "clean"):
        outcome = harness.start(calm, folder / "graph.h5", folder / name, server, *OPTIONS, per_node=2)
        assert outcome.code == 0, outcome.text
    assert harness.losses(folder / "run") == pytest.approx(harness.losses(folder / "clean"), rel=1e-6)
