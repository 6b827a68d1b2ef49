"""The comparison with peers: its arithmetic and its order, and one small comparison of hpcgnn with itself, run as a
user does.

Peers are not installed here: that needs a network.
"""

import json
import sys
from pathlib import Path

import graphs
import pytest
from slurm_helpers import ROOT, call

COMPARE = ROOT / "jobs" / "bench" / "comparison" / "compare.py"


@pytest.fixture(scope="module", autouse=True)
def bench():
    """The folders of compare.py and of the peers' code on the path, as they are for the scripts themselves."""
    folders = [str(COMPARE.parents[1]), str(COMPARE.parent / "peers")]
    sys.path += folders
    yield
    for folder in folders:
        sys.path.remove(folder)


def run_compare(*arguments):
    return call([sys.executable, COMPARE, *arguments], limit=300)


def sample(case, number, seconds, growth, **more):
    epochs = [
        {"loss": 1.0, "seconds": s, "user_seconds": 2 * s, "system_seconds": s / 2, "minor_faults": 10} for s in seconds
    ]
    about = {"model": "sage", "case": case, "round": number, "constant": number is None, "format": "a form"}
    grown = {"max": growth * 1e6, "sum": 2e6 * growth}
    return {**about, "epochs": epochs, "growth_bytes": grown, "versions": {"dgl": "2.1.0"}, **more}


SETTINGS = {"models": ["sage", "gat"], "threads": 2, "rounds": 2, "discard": 1, "reference": "dgl"}
#: Our cases on one rank and on eight, with other options, and a peer.
DOCUMENT = {
    "date": "2026-01-01T00:00:00+00:00",
    "graph": {"nodes": 10, "edges": 20, "features": 3, "classes": 2},
    "machine": {"cpu": "a processor"},
    "settings": {**SETTINGS, "constant_nodes": 4000},
    "cases": [
        {"name": "hpcgnn 1×2", "system": "hpcgnn", "ranks": 1, "variant": ""},
        {"name": "hpcgnn 8×1", "system": "hpcgnn", "ranks": 8, "variant": ""},
        {"name": "dgl", "system": "dgl"},
        {"name": "hpcgnn[narrow] 8×1", "system": "hpcgnn", "ranks": 8, "variant": "narrow"},
    ],
    "samples": [
        sample("hpcgnn 1×2", 0, [9.0, 1.0, 1.0, 2.0], 300),
        sample("dgl", 0, [9.0, 2.0, 2.0, 2.0], 500),
        sample("hpcgnn 8×1", 0, [9.0, 2.0], 350, startup_seconds=5.0),
        sample("hpcgnn[narrow] 8×1", 0, [9.0, 2.0], 350),
        sample("hpcgnn 1×2", 1, [9.0, 6.0, 6.0, 6.0], 100),
        sample("dgl", 1, [9.0, 4.0, 5.0, 3.0], 500),
        sample("hpcgnn 8×1", None, [1.0], 50),
    ],
    "absent": [],
    "failures": [],
}


def test_figures_of_a_table():
    """Spreads over rounds, memory less the constant of the processes, and its shares of one rank with these options."""
    from comparison.tables import render

    text = render(DOCUMENT)
    cells = {
        row[0]: row for row in ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()) if row
    }
    assert cells["hpcgnn 1×2"][1:3] == ["3.500 (1.000 to 6.000)", "1.00 (0.50 to 1.50)"]
    assert cells["hpcgnn 1×2"][7:9] == ["400 (200 to 600)", "0.40"] and cells["hpcgnn 1×2"][-3:] == ["–"] * 3
    assert cells["hpcgnn 8×1"][-4:] == ["100", "600", "0.60", "1.50"] and "5.0 (2.5)" in cells["hpcgnn 8×1"]
    assert cells["hpcgnn[narrow] 8×1"][-1] == "–" and "dgl 2.1.0: a form." in text and "## gat" not in text


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
        (["--systems", "keras"], "expected some of hpcgnn,dgl,pyg,sar,torch, got 'keras'"),
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


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_bare_torch_computes_the_same_aggregate(graph, model):
    """Its matrices and its gradient against sums over the edges of the file. Peers have the original order, and loops
    once.
    """
    import graph_file as peers
    import numpy as np
    import torch
    import torch_peer

    from hpcgnn.graphfile.storage import GraphFile

    with GraphFile(graph) as file:
        original, split = file.read("nodes/original_id"), file.read("nodes/split")
        features, labels = file.read("nodes/features"), file.read("nodes/labels")
        target = original[np.repeat(np.arange(2000), np.diff(file.read("topology/indptr")))]
        source = original[file.read("topology/indices")]
    read = peers.read_graph(graph, self_loops=True)
    assert (features == read.features[original]).all() and (labels == read.labels[original]).all()
    assert set(original[split == 1].tolist()) == set(read.train.tolist())
    a = np.eye(2000)
    np.add.at(a, (target, source), 1)
    degree = a.sum(1)
    dense = a / degree[:, None] if model == "sage" else a / np.sqrt(degree[:, None] * degree)
    x = torch.randn(2000, 3, requires_grad=True)
    y = torch_peer.Product.apply(*torch_peer.prepare(read, model), x)
    torch.testing.assert_close(y.detach().double(), torch.from_numpy(dense) @ x.detach().double(), rtol=1e-4, atol=1e-5)
    gradient = torch.randn(2000, 3)
    y.backward(gradient)
    torch.testing.assert_close(x.grad.double(), torch.from_numpy(dense.T) @ gradient.double(), rtol=1e-4, atol=1e-5)
