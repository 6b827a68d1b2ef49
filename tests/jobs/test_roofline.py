"""The ledger of an epoch: what it counts, against what the model's formulas say; never how long anything took."""

import json
from pathlib import Path

import pytest
from core.forked import start

ROOT = Path(__file__).parents[2]
NODES, DEGREE, FEATURES, CLASSES, HIDDEN = 600, 8, 12, 4, 16


def roofline(*arguments, ranks=1):
    return start(ranks, ROOT / "jobs" / "bench" / "epochs" / "roofline.py", *arguments, limit=300)


def test_what_is_counted_follows_from_the_model(graph, tmp_path):
    """Two layers of SAGE: a kept first aggregate, then a layer that aggregates its narrower result; on two ranks."""
    everything = ["--prune", "none", "--halo", "rows"]
    more = ["--layers", 2, "--hidden", HIDDEN, "--precision", "fp32", *everything]
    done = roofline("--graph", graph, "--rounds", 1, "--out", tmp_path / "r.json", "--", *more, ranks=2)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "r.json").read_text())
    first, second = NODES * FEATURES * HIDDEN, NODES * HIDDEN * CLASSES
    # Forwards two products a layer; backwards two for its weights, and two for the input of all layers but the first.
    assert found["gflop"] * 1e9 == pytest.approx(2 * (4 * first + 6 * second), rel=1e-9)
    assert found["gathered_gb"] * 1e9 == pytest.approx(2 * found["edges"] * CLASSES * 4, rel=1e-9)
    assert found["ranks"] == 2 and found["map"] == "metis"
    for rounds in found["rounds"]:
        (one,) = rounds
        assert one["watched"][0] <= sum(part[0] for part in one["parts"].values()), (
            "every second of an epoch has a line"
        )
        for part in ("GEMM", "gather", "elementwise", "pack", "wait", "reduction", "optimizer", "rest"):
            assert one["parts"][part][0] > 0, part
    ratio, seconds = found["ratio"]["wall"]["median"], found["seconds"]
    alone = seconds["GEMM alone"]["wall"]["median"] + seconds["gather alone"]["wall"]["median"]
    assert ratio == pytest.approx(seconds["epoch"]["wall"]["median"] / alone)
    for line in ("GEMM", "page faults", "epoch / (GEMM + gather)"):
        assert line in done.out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--graph", "g.h5", "--model", "keras"], "--model"),
        (["--graph", "missing.h5"], "no graph file at missing.h5"),
    ],
)
def test_mistakes_are_one_line(arguments, said):
    done = roofline(*arguments)
    assert done.code == 2
    assert said in done.err and "Traceback" not in done.err
