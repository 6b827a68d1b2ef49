"""`hpcgnn bench comm` as a user starts it: what it counts is exact, and what it writes is a machine file."""

import json

import graphs
import pytest

from hpcgnn.estimate.machine.machine import read_machine

from ..forked import start
from ..machines import made_up


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a graph that has maps for 2 ranks, and a machine file."""
    path, graph = tmp_path_factory.mktemp("bench"), graphs.with_task(graphs.random_undirected())
    graphs.write_file(path / "g.h5", graph, graphs.layout(graph, 2), 2)
    (path / "node.toml").write_text(made_up().to_toml())
    return path


def bench(folder, *options):
    return start(2, "-m", "hpcgnn", "bench", "comm", *options, cwd=folder)


def test_a_transport_is_measured(folder):
    """Both transports count the same, and the network of the latter becomes part of a machine file."""
    halo = []
    for name in ("mpi", "torch"):
        options = ["--comm", name, "--graph", "g.h5", "--partition", "dealt", "--width", 16, "--json", f"{name}.json"]
        result = bench(folder, *options, "-o", f"{name}.toml", "--like", "node.toml")
        assert result.code == 0 and name in result.out, result.err
        record = json.loads((folder / f"{name}.json").read_text())
        assert record["transport"] == name and record["partition"] == "dealt" and record["ranks"] == 2
        assert all(seconds > 0 for seconds in record["message_seconds"].values()) and record["network"]["bandwidth"] > 0
        halo.append([record["halo"][what] for what in ("bytes", "messages", "turns")])
        machine, node = read_machine(folder / f"{name}.toml"), read_machine(folder / "node.toml")
        assert machine.network.latency == record["network"]["latency"] and machine.rates == node.rates
        assert "bench comm" in machine.source and f"over {name}" in machine.source
    assert halo[0] == halo[1] and all(halo[0]) and halo[0][0] % (16 * 4) == 0, "whole rows"


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
