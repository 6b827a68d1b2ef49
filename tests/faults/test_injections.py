"""Jobs in which a rank fails at one of the stages: they end, in time, with an error, and can be continued.

Each test continues the run that the one before left; the last one compares the curve with a run's without faults.
"""

import pytest
from run_files import losses

from . import harness
from .harness import Injection

# words: what must be said.
CASES = {
    Injection("import", "exit 0", 1, 2): "rank 1 failed before the start",
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
# What a transport has a part in.
OVER_TORCH = {
    each: CASES[each] for each in CASES if each.stage in ("import", "load", "forward", "step", "evaluation", "shutdown")
}
# Two nodes of two ranks, of which one fails in the middle of an exchange between nodes.
BETWEEN_NODES = {
    Injection("forward", "kill", 1, 4, 9): "",
    Injection("meeting", "kill", 2, 4, 120): "",
    Injection("meeting", "stop", 3, 4, 130): "",
    Injection("backward", "raise", 2, 4, 3): "",
    Injection("meeting", "pause", 0, 4, 140): "",  # the run goes on to its end
}
# Ranks of one node, which read each other's rows.
ON_A_NODE = {Injection("meeting", "kill", 1, 2, 20): "", Injection("meeting", "stop", 0, 2, 30): ""}
KINDS = {"mpi": CASES, "torch": OVER_TORCH, "nodes": BETWEEN_NODES, "node": ON_A_NODE}
# Attention returns rows, and small buffers make many turns, so that ranks of a node wait for each other's lanes.
OF_NODES = ("--comm", "mpi", "--model", "gat", "--intra-node", "shared", "--halo-buffer", "0.02")


def is_slow(kind, injection):
    """Whether another kind, or another stage, has the fault in the quick lane."""
    return {
        "mpi": (injection.stage, injection.fault) in (("plan", "exit 0"), ("evaluation", "_exit 0")),
        "torch": injection.stage not in ("forward", "step", "shutdown"),
        "nodes": injection.stage != "meeting",
        "node": injection.fault == "stop",
    }[kind]


JOBS = [
    pytest.param(kind, each, marks=[pytest.mark.slow] * is_slow(kind, each)) for kind in KINDS for each in KINDS[kind]
]


def start(kind, folder, server, injection, name):
    """The Outcome of a job of a kind, in the run directory of that name."""
    options, per_node = (OF_NODES, 2) if kind == "nodes" else (("--comm", kind), None)
    if kind == "node":
        options = "--comm", "mpi", "--intra-node", "auto"
    more = {"per_node": per_node, "without_mpi": kind == "torch"}
    return harness.start(injection, folder / "graph.h5", folder / name, server, *options, **more)


@pytest.mark.parametrize("kind, injection", JOBS, ids=str)
def test_a_fault(folder, server, kind, injection):
    """The same end over every transport: codes of jobs that a rank ended are as over MPI, too."""
    outcome = start(kind, folder, server, injection, f"run-{kind}")
    assert outcome.happened, outcome.text
    assert not harness.complaint(injection, outcome, folder / f"run-{kind}"), outcome.text
    assert KINDS[kind][injection] in outcome.text, outcome.text
    if injection.fault == "raise":
        assert outcome.code == 1, outcome.text


@pytest.mark.parametrize(
    "clean, kinds, ranks", [("mpi", ["mpi", "torch"], 2), ("nodes", ["nodes"], 4), ("node", ["node"], 2)]
)
def test_after_all_of_it_the_curve_is_that_of_a_run_without_faults(folder, server, clean, kinds, ranks):
    for name, kind in {f"clean-{clean}": clean, **{f"run-{kind}": kind for kind in kinds}}.items():
        outcome = start(kind, folder, server, Injection("import", "none", 0, ranks), name)
        assert outcome.code == 0, outcome.text
        assert ("in shared memory;" in outcome.text) == (kind in ("node", "nodes"))
        assert losses(folder / name) == pytest.approx(losses(folder / f"clean-{clean}"), rel=1e-6)
        assert not list((folder / name).rglob("*.part")), "nothing half-written stays"
