"""`hpcgnn bench comm` as a user starts it: what it counts is exact, and what it writes is a machine file."""

import json

import graphs
import pytest

from hpcgnn.estimate.machine.machine import read_machine

from .forked import start
from .machines import made_up


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a graph that has maps for 2 ranks, and a machine file."""
    path, graph = tmp_path_factory.mktemp("bench"), graphs.with_task(graphs.random_undirected())
    graphs.write_file(path / "g.h5", graph, graphs.layout(graph, 2), 2)
    (path / "node.toml").write_text(made_up().to_toml())
    return path


def bench(folder, *options, **environment):
    return start(2, "-m", "hpcgnn", "bench", "comm", *options, cwd=folder, **environment)


def test_every_transport_in_one_run(folder):
    options = ["--graph", "g.h5", "--partition", "dealt", "--width", 16, "--json", "c.json"]
    result = bench(folder, *options, "-o", "cluster.toml", "--like", "node.toml", HPCGNN_ONECCL="nowhere")
    assert result.code == 0, result.err
    assert "not here: oneccl (" in result.out and "torch" in result.out
    record = json.loads((folder / "c.json").read_text())
    mpi, gloo = (record["transports"][name] for name in ("mpi", "torch"))
    assert record["partition"] == "dealt" and record["ranks"] == 2
    for name in ("bytes", "messages", "turns"):
        assert mpi["halo"][name] == gloo["halo"][name] > 0
    assert mpi["halo"]["bytes"] % (16 * 4) == 0, "whole rows"
    for found in (mpi, gloo):
        assert all(seconds > 0 for seconds in found["message_seconds"].values()) and found["network"]["bandwidth"] > 0
    machine, node = read_machine(folder / "cluster.toml"), read_machine(folder / "node.toml")
    assert machine.network.latency == mpi["network"]["latency"] and machine.rates == node.rates
    assert "bench comm" in machine.source


@pytest.mark.parametrize(
    "options, words",
    [
        (["-o", "x.toml"], "needs --like NODE.toml"),
        (["-o", "x.toml", "--like", "absent.toml"], "cannot read the machine file absent.toml"),
        (["--json", "nowhere/c.json"], "no directory nowhere"),
        (["--graph", "absent.h5"], "no graph file"),
    ],
)
def test_mistakes(folder, options, words):
    result = bench(folder, *options)
    assert result.code == 2 and len(result.errors) == 1 and words in result.errors[0], result.err
    assert "measuring" not in result.err, "before anything was measured"
