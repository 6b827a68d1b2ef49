"""The comparison with peers: its arithmetic and its order, and one small comparison of hpcgnn with itself, run as a
user does.

Peers are not installed here: that needs a network.
"""

import json
import subprocess
import sys
from pathlib import Path

import graphs
import pytest
from core.launching import clean_environment

ROOT = Path(__file__).parents[2]
COMPARE = ROOT / "jobs" / "bench" / "comparison" / "compare.py"


@pytest.fixture(scope="module", autouse=True)
def bench():
    """The folders of compare.py and of the peers' code on the path, as they are for the scripts themselves."""
    folders = [str(COMPARE.parents[1]), str(COMPARE.parent / "peers")]
    sys.path += folders
    yield
    for folder in folders:
        sys.path.remove(folder)


def run_compare(*arguments, limit=300):
    return subprocess.run(
        [sys.executable, str(COMPARE), *map(str, arguments)],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=limit,
    )


def sample(case, number, seconds, growth=None, model="sage", constant=False):
    epochs = [
        {"loss": 1.0, "seconds": s, "user_seconds": 2 * s, "system_seconds": s / 2, "minor_faults": 10} for s in seconds
    ]
    grown = None if growth is None else {"max": growth, "sum": 2 * growth}
    return {
        "model": model,
        "case": case,
        "round": number,
        "constant": constant,
        "epochs": epochs,
        "growth_bytes": grown,
        "versions": {"dgl": "2.1.0", "hpcgnn": "0.1.0"},
        "format": "a form",
    }


def document(*samples, cases=(("hpcgnn 1×2", "hpcgnn"), ("dgl", "dgl")), **more):
    return {
        "date": "2026-01-01T00:00:00+00:00",
        "graph": {"nodes": 10, "edges": 20, "features": 3, "classes": 2},
        "machine": {"cpu": "a processor"},
        "settings": {
            "models": ["sage"],
            "threads": 2,
            "rounds": 2,
            "discard": 1,
            "reference": "dgl",
            "constant_nodes": 4000,
        },
        "cases": [{"name": name, "system": system} for name, system in cases],
        "samples": list(samples),
        "absent": [],
        "failures": [],
        **more,
    }


TWO_ROUNDS = (
    sample("hpcgnn 1×2", 0, [9.0, 1.0, 1.0, 2.0], growth=300e6),
    sample("dgl", 0, [9.0, 2.0, 2.0, 2.0], growth=500e6),
    sample("hpcgnn 1×2", 1, [9.0, 6.0, 6.0, 6.0], growth=100e6),
    sample("dgl", 1, [9.0, 4.0, 5.0, 3.0], growth=500e6),
)


def test_table_has_spreads_and_names_what_was_not_measured():
    from comparison.tables import render

    text = render(
        document(
            *TWO_ROUNDS,
            absent=[{"system": "pyg", "reason": "installing it failed: no network"}],
            failures=[
                {"model": "gat", "case": "pyg", "label": "round-1", "reason": "took longer than 9 s (--timeout)"}
            ],
        )
    )
    (line,) = [line for line in text.splitlines() if line.startswith("| hpcgnn")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["hpcgnn 1×2", "3.500 (1.000 to 6.000)", "1.00 (0.50 to 1.50)"]
    assert "400 (200 to 600)" in cells and "0.40" in cells
    assert "* pyg: absent: installing it failed: no network" in text
    assert "* gat, pyg, round-1: failed: took longer than 9 s (--timeout)" in text
    assert "## gat" not in text
    assert "dgl 2.1.0: a form." in text


def test_memory_less_the_constant_and_ratios_to_the_same_setting():
    from comparison.results import one_rank_of, own_part, startup
    from comparison.tables import render

    cases = ["hpcgnn 1×2", "hpcgnn 8×1", "dgl", "hpcgnn[narrow] 8×1"]
    found = document(
        *(sample(name, 0, [9.0, 2.0], growth=size * 1e6) for name, size in zip(cases, (250, 350, 500, 350))),
        sample("hpcgnn 8×1", None, [1.0], growth=50e6, constant=True),
    )
    found["cases"] = [
        {"name": name, "system": name[:6], "ranks": 8 if "8" in name else 1, "variant": "narrow" if "[" in name else ""}
        for name in cases
    ]
    found["samples"][1]["startup_seconds"] = 5.0
    assert own_part(found, "sage", "hpcgnn 8×1") == 600e6 and own_part(found, "sage", "hpcgnn 1×2") is None
    assert one_rank_of(found, "sage", "hpcgnn 8×1") == "hpcgnn 1×2" and one_rank_of(found, "sage", "dgl") is None
    assert one_rank_of(found, "sage", "hpcgnn[narrow] 8×1") is None, "one rank was not measured with these options"
    assert startup(found, "sage", "hpcgnn 8×1")[1]["median"] == 2.5 and startup(found, "sage", "dgl") == (None, None)
    (line,) = [line for line in render(found).splitlines() if line.startswith("| hpcgnn 8×1 ")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[-4:] == ["100", "600", "0.60", "1.20"], "600 of 1000 of dgl and of 500 of one rank; all ranks together"
    assert "5.0 (2.5)" in cells


def test_a_process_that_takes_too_long_or_fails_is_ended_and_its_reason_kept(tmp_path):
    from shared.processes import Failed, clean_environment, run

    child = tmp_path / "child"
    slow = (  # ranks of a launcher are in sessions of their own
        "import subprocess, time; children = [subprocess.Popen(['sleep', '60'], start_new_session=own) for own in "
        f"(0, 1)]; open({str(child)!r}, 'w').write(' '.join(str(process.pid) for process in children)); "
        "time.sleep(60)"
    )
    with pytest.raises(Failed, match=r"took longer than 3 s \(--timeout\)"):
        run([sys.executable, "-c", slow], tmp_path / "log", 3, clean_environment(1))
    for number in child.read_text().split():
        state = Path("/proc", number, "stat")
        assert not state.exists() or state.read_text().split()[2] == "Z", "what it started is ended with it"
    wrong = "print('before'); raise ValueError('a bad graph')"
    with pytest.raises(Failed, match="exit code 1: ValueError: a bad graph"):
        run([sys.executable, "-c", wrong], tmp_path / "log", 60, clean_environment(1))


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "g.h5"
    return graphs.planted(path, [1, 2], clusters=64, nodes=2000, degree=10, features=16, classes=5, seed=0)


@pytest.mark.slow
def test_comparison_of_ranks_on_a_small_graph(graph, tmp_path):
    """One rank with two, bare torch, which has no gat, and a peer whose environment cannot be made."""
    (tmp_path / "file").write_text("no folder")
    done = run_compare(
        *("--graph", graph, "--systems", "hpcgnn,dgl,torch", "--environments", tmp_path / "file", "--ranks", "1,2"),
        *("--models", "sage,gat", "--hidden", 8, "--rounds", 1, "--epochs", 2, "--discard", 1),
        *("--constant-nodes", 0, "--out", tmp_path / "out", "--", "--seed", 3),
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    found = json.loads((out / "compare.json").read_text())
    samples = [s for s in found["samples"] if s["model"] == "sage"]
    assert [(s["case"], s["round"]) for s in samples] == [("hpcgnn 1×2", 0), ("torch", 0), ("hpcgnn 2×1", 0)]
    one, bare, two = samples
    for measured in samples:
        assert len(measured["epochs"]) == 3 and measured["growth_bytes"]["sum"] > 0
        for epoch in measured["epochs"]:
            assert epoch["seconds"] > 0 and epoch["user_seconds"] + epoch["system_seconds"] > 0
        assert (measured["command"][-2:] == ["--seed", "3"]) == (measured is not bare)
    assert bare["allocator_policy_in_force"] and bare["versions"]["torch"]
    assert "ratio to torch" in done.stdout, "the reference that was asked for is absent, the next peer serves"
    losses = [[epoch["loss"] for epoch in measured["epochs"]] for measured in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4), "the same training, whatever the number of ranks"
    assert found["graph"]["nodes"] == 2000 and found["machine"]["cpu"] and found["allocator"]["mmap_threshold_bytes"]
    (failure,), (absent,) = found["failures"], found["absent"]
    assert failure["label"] == "round-1" and "exit code 1: error: bare torch has no gat" in failure["reason"]
    assert absent["system"] == "dgl" and "cannot be made" in absent["reason"]
    assert f"* gat, torch, round-1: failed: {failure['reason']}" in done.stdout
    assert f"* dgl: absent: {absent['reason']}" in done.stdout
    shown = (out / "compare.md").read_text()
    assert shown.strip() in done.stdout
    (out / "compare.md").unlink()
    assert run_compare("--redraw", out / "compare.json").returncode == 0
    assert (out / "compare.md").read_text() == shown


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--graph", "missing.h5", "--systems", "hpcgnn", "--out", "{tmp}/new"], "no graph file at missing.h5"),
        (["--systems", "hpcgnn", "--out", "{tmp}"], "is not empty; expected a new folder"),
        (["--systems", "keras"], "expected some of hpcgnn,dgl,pyg,torch, got 'keras'"),
        (["--variant", "x"], "expected NAME='OPTIONS OF hpcgnn train', got 'x'"),
        (["--ranks", "1,0"], "expected a whole number from 1 up, got '0'"),
        (["--peer-epochs", "pyg=2"], "expected N or SYSTEM:MODEL=N"),
        (["--redraw", "missing.json"], "missing.json"),
    ],
)
def test_mistakes_are_one_line(tmp_path, arguments, said):
    (tmp_path / "something").write_text("")
    done = run_compare(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_graph_of_peers_is_that_of_the_file(graph):
    """The graph read by peers, against the graph file: the original order is a renumbering, and loops are added only
    once.
    """
    import graph_file as peers
    import numpy as np

    from hpcgnn.graphfile.storage import GraphFile

    with GraphFile(graph) as file:
        original, split = file.read("nodes/original_id"), file.read("nodes/split")
        features, labels = file.read("nodes/features"), file.read("nodes/labels")
        indptr, indices = file.read("topology/indptr"), file.read("topology/indices")
    renumbered = peers.read_graph(graph)

    def pairs(indptr, indices, names):
        target = np.repeat(np.arange(2000), np.diff(indptr))
        return sorted(zip(names[target].tolist(), names[indices].tolist()))

    found = pairs(renumbered.indptr, renumbered.indices, np.arange(2000))
    assert found == pairs(indptr, indices, original)
    assert (features == renumbered.features[original]).all()
    assert (labels == renumbered.labels[original]).all()
    assert set(original[split == 1].tolist()) == set(renumbered.train.tolist())
    looped = peers.read_graph(graph, self_loops=True)
    assert pairs(looped.indptr, looped.indices, np.arange(2000)) == sorted(found + [(i, i) for i in range(2000)])


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_bare_torch_computes_the_same_aggregate(graph, model):
    """Its matrices and its gradient against sums over the edges."""
    import graph_file
    import numpy as np
    import torch
    import torch_peer

    read = graph_file.read_graph(graph, self_loops=True)
    target, degree = np.repeat(np.arange(2000), np.diff(read.indptr)), np.diff(read.indptr)
    weight = 1 / degree[target] if model == "sage" else 1 / np.sqrt(degree[target] * degree[read.indices])
    dense = np.zeros((2000, 2000))
    np.add.at(dense, (target, read.indices), weight)
    x = torch.randn(2000, 3, requires_grad=True)
    y = torch_peer.Product.apply(*torch_peer.prepare(read, model), x)
    torch.testing.assert_close(y.detach().double(), torch.from_numpy(dense) @ x.detach().double(), rtol=1e-4, atol=1e-5)
    gradient = torch.randn(2000, 3)
    y.backward(gradient)
    torch.testing.assert_close(x.grad.double(), torch.from_numpy(dense.T) @ gradient.double(), rtol=1e-4, atol=1e-5)
