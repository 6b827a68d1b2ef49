"""`hpcgnn estimate` as it is started: its output and files, and its refusals in one line."""

import json

import pytest
from core.test_output_files import check_inputs_stay

from hpcgnn.__main__ import main
from hpcgnn.extras.estimate.results import PARTS

SMALL = ("--model", "sage", "--layers", "2", "--hidden", "8", "--epochs", "100")


def estimate(capsys, *arguments):
    """The printed text."""
    code = main(["estimate", *map(str, arguments), *SMALL])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def check_row(row):
    """The relations between the numbers of one estimate."""
    assert row["training_growth_bytes"]["max"] < row["peak_rss_bytes"]["max"]
    for which in ("max", "mean"):
        parts = row["memory_parts"][which]
        assert set(parts) == set(PARTS) and sum(parts.values()) == row["peak_rss_bytes"][which]
        assert all(value >= 0 for value in parts.values())
        grown = row["loaded_bytes"][which] + row["training_growth_bytes"][which]
        assert row["libraries_rss_bytes"][which] + grown == row["peak_rss_bytes"][which]
    assert row["peak_rss_bytes"]["mean"] <= row["peak_rss_bytes"]["max"]
    halo = ("halo_forward", "halo_backward")
    assert row["halo_bytes_per_epoch"] == sum(row["bytes_per_epoch"].get(kind, 0) for kind in halo)
    assert row["halo_messages_per_epoch"] == sum(row["messages_per_epoch"].get(kind, 0) for kind in halo)
    assert row["allreduce_bytes_per_epoch"] == (row["ranks"] > 1) * row["ranks"] * row["parameters"] * 4
    assert (row["ranks"] > 1) == (row["halo_rows_total"] > 0)
    assert (row["halo_bytes_per_epoch"] > 0) == (row["ranks"] > 1 and row["nodes"] != 1), "ranks of a node send nothing"


def test_from_a_graph_file(capsys, graph, tmp_path):
    file = ("--json", tmp_path / "o.json")
    estimate(capsys, "--graph", graph, "--ranks", "4,1,2", "--ranks-per-node", "2", *file)
    rows = json.loads((tmp_path / "o.json").read_text())
    assert [(row["ranks"], row["nodes"]) for row in rows] == [(4, 2), (1, 1), (2, 1)], "in the order of --ranks"
    for row in rows:
        check_row(row)
        assert row["bytes_counted"]
        assert row["node_bytes"] <= min(2, row["ranks"]) * row["peak_rss_bytes"]["max"]


def refused(capsys, *arguments):
    """The one line with the reason."""
    code = main(["estimate", *map(str, arguments)])
    error = capsys.readouterr().err
    assert code == 2 and error.count("\n") == 1 and error.startswith("hpcgnn"), error
    return error


ARGUMENTS = {
    "neither": ((), "--graph is required"),
    "no file": (("--graph", "absent.h5"), "absent.h5"),
    "no ranks": (("--ranks", "0"), "expected numbers of ranks of at least 1"),
    "ranks per node": (("--ranks-per-node", "0", "--graph", "g.h5"), "--ranks-per-node 0: expected at least 1"),
    "no folder": (("--graph", "g.h5", "--json", "absent/o.json"), "there is no directory absent; make it first"),
    "model": (("--model", "gnc"), "gnc"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_refused(capsys, name, tmp_path, monkeypatch, graph):
    monkeypatch.chdir(tmp_path)
    arguments, said = ARGUMENTS[name]
    assert said in refused(capsys, "--ranks", "2", *arguments)
    error = refused(capsys, "--graph", graph, "--ranks", "2,17")
    assert "17 ranks are more than the 16 clusters" in error and "--ranks 17" in error


def test_it_does_not_replace_what_it_reads(run, command):
    check_inputs_stay(run, command, "estimate --config c.toml --ranks 2", "--json", "clash.json", ("g.h5", "c.toml"))


def test_a_map_that_is_not_there_is_made(capsys, graph):
    """A job is estimated before its map is stored: the first command of the manual once was refused."""
    shown = estimate(capsys, "--graph", graph, "--ranks", "2,5")
    assert "no map is stored for 5 ranks: counted with the one that a run makes" in shown
    assert "no map 'mtis'" in refused(capsys, "--graph", graph, "--ranks", "2", "--partition", "mtis")
