"""Jobs in which a rank fails at one of the stages: they end, in time, with an error, and can be continued.

Each test continues what the one before left; the last one compares the curve with that of a run without faults.
`soak.py` does the same at random, hundreds of times.
"""

import pytest

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from . import harness
from .harness import Injection

# words: what must be said.
CASES = {
    Injection("import", "exit 0", 1, 2): "rank 1 failed before MPI was started",
    Injection("load", "raise", 1, 2): "rank 1 of 2 failed",
    Injection("plan", "exit 0", 0, 2): "SystemExit: 0",
    Injection("forward", "stop", 1, 2, 5): "Did not arrive: rank 1 (",
    Injection("backward", "hang", 0, 2, 2): "works at something else",
    Injection("reduction", "memory", 1, 2, 2): "error on rank 1 of 2: out of memory",
    Injection("step", "kill", 1, 2, 3): "",
    Injection("evaluation", "_exit 0", 1, 2, 2): "",
    Injection("checkpoint", "disk", 0, 2, 2): "cannot write",
    Injection("checkpoint", "kill", 0, 2, 8): "",
    Injection("backward", "pause", 1, 2, 1): "",
    Injection("shutdown", "segfault", 0, 2): "",
}
# Of a kind that has another stage here.
AGAIN = {each for each in CASES if (each.stage, each.fault) in (("plan", "exit 0"), ("evaluation", "_exit 0"))}
# What a transport has a part in.
OVER_TORCH = {
    Injection("import", "exit 0", 1, 2): "rank 1 failed before the ranks had met",
    **{each: CASES[each] for each in CASES if each.stage in ("load", "forward", "step", "evaluation", "shutdown")},
}
JOBS = [
    *(pytest.param("mpi", each, marks=[pytest.mark.slow] * (each in AGAIN)) for each in CASES),
    *(
        pytest.param("torch", each, marks=[pytest.mark.slow] * (each.stage not in ("forward", "step", "shutdown")))
        for each in OVER_TORCH
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a graph, and the run that all tests continue."""
    path = tmp_path_factory.mktemp("faults")
    generate_graph("planted", path / "graph.h5", Spec(nodes=600, degree=6, features=16, classes=4, seed=3))
    partition_graph(path / "graph.h5", [2], num_clusters=64)
    return path


@pytest.fixture(scope="module")
def server():
    with harness.nursery() as path:
        yield path


@pytest.mark.parametrize("comm, injection", JOBS, ids=str)
def test_a_fault(folder, server, comm, injection):
    """The same end over every transport: codes of jobs that a rank ended are as over MPI, too."""
    run = folder / f"run-{comm}"
    outcome = harness.start(injection, folder / "graph.h5", run, server, "--comm", comm)
    assert outcome.happened, outcome.text
    assert not harness.complaint(injection, outcome, run), outcome.text
    assert {"mpi": CASES, "torch": OVER_TORCH}[comm][injection] in outcome.text, outcome.text
    if injection.fault == "raise":
        assert outcome.code == 1, outcome.text


def test_after_all_of_it_the_curve_is_that_of_a_run_without_faults(folder, server):
    runs = {"run-mpi": "mpi", "run-torch": "torch", "clean": "mpi"}
    for name, comm in runs.items():
        calm = Injection("import", "none", 0, 2)
        outcome = harness.start(calm, folder / "graph.h5", folder / name, server, "--comm", comm)
        assert outcome.code == 0, outcome.text
    for name in runs:
        assert harness.losses(folder / name) == pytest.approx(harness.losses(folder / "clean"), rel=1e-6)
        assert not list((folder / name).rglob("*.part")), "nothing half-written stays"
