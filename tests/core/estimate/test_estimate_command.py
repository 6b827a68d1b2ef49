"""`hpcgnn estimate` as it is started: what it prints and writes, and what it refuses in one line."""

import json

import pytest

from hpcgnn.__main__ import main
from hpcgnn.estimate.results import PARTS

SMALL = ("--model", "sage", "--layers", "2", "--hidden", "8", "--epochs", "100")


def estimate(capsys, *arguments):
    """What is printed."""
    code = main(["estimate", *map(str, arguments), *SMALL])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def check_row(row):
    """What holds between the numbers of one estimate."""
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
    assert row["allreduce_bytes_per_epoch"] == row["ranks"] * row["parameters"] * 4
    assert (row["halo_bytes_per_epoch"] > 0) == (row["ranks"] > 1) == (row["halo_rows_total"] > 0)


def test_from_a_graph_file(capsys, graph, tmp_path):
    files = ("--json", tmp_path / "o.json", "--plot", tmp_path / "p.png")
    estimate(capsys, "--graph", graph, "--ranks", "4,1,2", "--ranks-per-node", "2", *files)
    rows = json.loads((tmp_path / "o.json").read_text())
    assert [(row["ranks"], row["nodes"]) for row in rows] == [(4, 2), (1, 1), (2, 1)], "in the order of --ranks"
    for row in rows:
        check_row(row)
        assert row["bytes_counted"]
        assert row["node_bytes"] <= min(2, row["ranks"]) * row["peak_rss_bytes"]["max"]
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


STATS = ("--stats", "1e5,6e5,32,10,2.3")


def test_from_a_few_numbers(capsys, tmp_path):
    """More ranks hold less each, and send more in all."""
    out = estimate(capsys, *STATS, "--ranks", "2,8,64", "--json", tmp_path / "o.json")
    rows = json.loads((tmp_path / "o.json").read_text())
    for row in rows:
        check_row(row)
    for less, more in zip(rows, rows[1:]):
        assert more["peak_rss_bytes"]["max"] < less["peak_rss_bytes"]["max"]
        assert more["halo_bytes_per_epoch"] > less["halo_bytes_per_epoch"]
    assert "assumed: --cut-share 0.3" in out


def test_options_without_meaning_are_refused(capsys, graph):
    assert main(["estimate", "--graph", str(graph), "--ranks", "2", "--cut-share", "0.1", *SMALL]) == 2
    assert "--cut-share and --train-share belong to --stats" in capsys.readouterr().err


def refused(capsys, *arguments):
    """The one line that says why not."""
    try:
        code = main(["estimate", *map(str, arguments)])
    except SystemExit as left:
        code = left.code
    error = capsys.readouterr().err
    assert code == 2 and error.count("\n") == 1 and error.startswith("hpcgnn"), error
    return error


ARGUMENTS = {
    **{
        numbers: (("--stats", numbers), "expected nodes,edges,features,classes")
        for numbers in ("1e6,2e7", "a,b,c,d", "0,10,4,2", "inf,10,4,2", "nan,10,4,2")
    },
    "exponent that is none": (("--stats", "100,1000,4,2,nan"), "expected an exponent between 1 and 10"),
    "exponent": (("--stats", "100,1000,4,2,0.5"), "expected an exponent between 1 and 10"),
    "cut share": ((*STATS, "--cut-share", "1.5"), "expected a share from 0 to 1"),
    "cut share in words": ((*STATS, "--cut-share", "most"), "expected a share from 0 to 1"),
    "train share": ((*STATS, "--train-share", "-0.1"), "expected a share from 0 to 1"),
    "both": ((*STATS, "--graph", "g.h5"), "expected --graph or --stats, got both"),
    "neither": ((), "--graph is required"),
    "no file": (("--graph", "absent.h5"), "absent.h5"),
    "no ranks": ((*STATS, "--ranks", "0"), "expected numbers of ranks of at least 1"),
    "ranks per node": ((*STATS, "--ranks-per-node", "0"), "--ranks-per-node"),
    "no folder": ((*STATS, "--json", "absent/o.json"), "there is no directory absent; make it first"),
    "no folder for a picture": ((*STATS, "--plot", "absent/o.png"), "there is no directory absent; make it first"),
    "wrong picture": ((*STATS, "--plot", "o.abc"), "o.abc"),
    "model": ((*STATS, "--model", "gnc"), "gnc"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_refused(capsys, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, said = ARGUMENTS[name]
    assert said in refused(capsys, "--ranks", "2", *arguments)


def test_more_ranks_than_clusters(capsys, graph):
    error = refused(capsys, "--graph", graph, "--ranks", "2,17", "--auto-partition")
    assert "17 ranks are more than the 16 clusters" in error and "--ranks 17" in error


def test_a_map_that_is_not_there_is_made(capsys, graph):
    """A job is estimated before its map is stored: the first command of the manual once was refused."""
    shown = estimate(capsys, "--graph", graph, "--ranks", "2,5")
    assert "no map is stored for 5 ranks: counted with the one that --auto-partition makes" in shown
    assert "no map 'mtis'" in refused(capsys, "--graph", graph, "--ranks", "2", "--partition", "mtis")
