"""`hpcgnn estimate` as it is started: what it prints and writes, and what it refuses in one line."""

import json

import pytest

from hpcgnn.__main__ import main
from hpcgnn.estimate.alternatives import ROUNDED, SAME, advice_on
from hpcgnn.estimate.results import PARTS
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..machines import made_up


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("estimate") / "g.h5"
    generate_graph("planted", path, Spec(nodes=400, degree=6, features=8, classes=4, seed=1))
    partition_graph(path, [2, 4], num_clusters=16)
    return path


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "m.toml").write_text(made_up().to_toml())
    return tmp_path / "m.toml"


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


def test_from_a_graph_file(capsys, graph, machine, tmp_path):
    out = estimate(
        capsys,
        *("--graph", graph, "--ranks", "4,1,2", "--machine", machine, "--json", tmp_path / "o.json"),
        *("--plot", tmp_path / "p.png"),
    )
    rows = json.loads((tmp_path / "o.json").read_text())
    assert [row["ranks"] for row in rows] == [4, 1, 2], "in the order in which they were asked for"
    for row in rows:
        check_row(row)
        assert row["bytes_counted"] and row["fits"] is True and row["nodes"] == 1
        assert sum(row["seconds"].values()) == pytest.approx(row["epoch_seconds"]["median"])
        assert row["node_hours"] == pytest.approx(
            row["nodes"] * 100 * (row["epoch_seconds"]["median"] + row["evaluation_seconds"]) / 3600
        )
        assert row["node_bytes"] <= row["ranks"] * row["peak_rss_bytes"]["max"]
        assert row["libraries_rss_bytes"]["max"] == made_up().libraries
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "node-hours" in out and "s/epoch" in out and "fewest ranks that fit: " in out


def test_without_a_machine(capsys, graph, tmp_path):
    out = estimate(
        capsys, "--graph", graph, "--ranks", "2", "--json", tmp_path / "o.json", "--plot", tmp_path / "p.png"
    )
    (row,) = json.loads((tmp_path / "o.json").read_text())
    check_row(row)
    assert (row["fits"], row["epoch_seconds"], row["nodes"]) == (None, None, None)
    assert "--machine FILE says what the nodes are like" in out and "s/epoch" not in out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_other_options_are_estimates_of_their_own(capsys, graph, machine, tmp_path):
    """Each has the numbers of a call with that option."""
    path = tmp_path / "o.json"

    def rows_of(*more):
        out = estimate(capsys, "--graph", graph, "--machine", machine, "--json", path, "--force", *more)
        return out, json.loads(path.read_text())

    out, (one, four) = rows_of("--ranks", "1,4", "--alternatives")
    varied, left = (one, four) if "alternatives" in one else (four, one)
    assert "alternatives" not in left and f"other options on {varied['ranks']} ranks:" in out
    out, (row,) = rows_of("--ranks", "4", "--alternatives")
    found = {each["options"]: each for each in row["alternatives"]}
    assert {
        "as asked",
        "--halo-buffer 2",
        "--precision mixed",
        "--schedule lazy",
        "2 ranks × 8 threads",
    } <= found.keys()
    assert "recommended with the same results: " in out and all(each in out for each in found)
    numbers = "peak_rss_bytes", "bytes_per_epoch", "messages_per_epoch", "node_hours", "epochs"
    for words in ("--halo-buffer 2", "--halo-dtype int8", "--schedule lazy"):
        _, (alone,) = rows_of("--ranks", "4", *words.split())
        assert [found[words][name] for name in numbers] == [alone[name] for name in numbers], words
    assert found["as asked"]["epochs"] == 100 and found["--schedule lazy"]["epochs"] == 200, "of each of two layers"


def test_other_options_of_one_rank_and_of_attention(capsys, graph, tmp_path):
    """What would change nothing, or is refused, is left out; without a machine memory decides."""
    path = tmp_path / "o.json"
    out = estimate(capsys, "--graph", graph, "--ranks", "1", "--alternatives", "--json", path)
    (row,) = json.loads(path.read_text())
    assert [each["options"] for each in row["alternatives"]] == ["as asked", "--precision mixed"]
    assert "recommended with the same results: the options as they are" in out
    attention = (
        "estimate",
        "--graph",
        str(graph),
        "--ranks",
        "2",
        "--alternatives",
        "--json",
        str(path),
        "--force",
        "--model",
        "gat",
    )
    assert main([*attention]) == 0
    (row,) = json.loads(path.read_text())
    assert not {"--precision mixed"} & {each["options"] for each in row["alternatives"]}


def test_what_does_not_fit_is_not_recommended():
    def row(options, results, hours, fits):
        return {
            "options": options,
            "results": results,
            "node_hours": hours,
            "fits": fits,
            "epoch_seconds": {"median": 1},
        }

    asked = row("as asked", SAME, 1.0, False)
    rounded = row("--precision mixed", ROUNDED, 2.0, True)
    nothing = "recommended with the same results: nothing; none of these fits the nodes"
    assert [*advice_on([asked])] == [nothing]
    assert [*advice_on([asked, rounded])] == [
        nothing,
        "recommended with rounded numbers: --precision mixed (2.00 of the node-hours)",
    ]
    assert [*advice_on([asked, row("--halo-buffer 2", SAME, 3.0, True), rounded])] == [
        "recommended with the same results: --halo-buffer 2 (3.00 of the node-hours)",
        "recommended with rounded numbers: --precision mixed (2.00 of the node-hours)",
    ]


STATS = ("--stats", "1e5,6e5,32,10,2.3")


def test_from_a_few_numbers(capsys, machine, tmp_path):
    """More ranks hold less each, and send more in all."""
    out = estimate(capsys, *STATS, "--ranks", "2,8,64", "--machine", machine, "--json", tmp_path / "o.json")
    rows = json.loads((tmp_path / "o.json").read_text())
    for row in rows:
        check_row(row)
        assert row["nodes"] == -(-row["ranks"] // 4)
    for less, more in zip(rows, rows[1:]):
        assert more["peak_rss_bytes"]["max"] < less["peak_rss_bytes"]["max"]
        assert more["halo_bytes_per_epoch"] > less["halo_bytes_per_epoch"]
    assert "assumed: --cut-share 0.3" in out


def test_options_without_meaning_are_refused(capsys, graph):
    assert main(["estimate", "--graph", str(graph), "--ranks", "2", "--cut-share", "0.1", *SMALL]) == 2
    assert "--cut-share and --train-share belong to --stats" in capsys.readouterr().err


def test_the_fewest_ranks_are_named_in_whatever_order_they_were_asked_for(capsys, graph, machine):
    assert "fewest ranks that fit: 1 on" in estimate(capsys, "--graph", graph, "--ranks", "4,1,2", "--machine", machine)


def test_what_fits(capsys, tmp_path):
    """Of ranks of which a few hold too much for a node, the fewest that fit are recommended."""
    run = (*STATS, "--ranks", "1,2,16", "--ranks-per-node", "1", "--json", tmp_path / "o.json", "--force")
    (tmp_path / "m.toml").write_text(made_up().to_toml())
    estimate(capsys, *run, "--machine", tmp_path / "m.toml")
    needed = [row["node_bytes"] for row in json.loads((tmp_path / "o.json").read_text())]
    assert needed[0] > needed[1] > needed[2]

    def with_memory(size):
        (tmp_path / "m.toml").write_text(made_up(memory=round(size)).to_toml())
        out = estimate(capsys, *run, "--machine", tmp_path / "m.toml")
        return out, [row["fits"] for row in json.loads((tmp_path / "o.json").read_text())]

    out, fits = with_memory(needed[1] / 0.945)
    assert fits == [False, True, True]
    assert "fewest ranks that fit: 2 on 2 nodes of 1 ranks" in out
    assert [line.split()[-1] for line in out.splitlines() if line.split()[:1] in (["1"], ["2"], ["16"])] == [
        *("no", "yes", "yes")
    ]
    out, fits = with_memory(needed[2] / 2)
    assert fits == [False] * 3 and "none fits nodes of" in out and "fewest ranks" not in out


def test_what_was_not_measured_is_named(capsys, graph, tmp_path):
    rates = [rate for rate in made_up().rates if rate.name != "gather"]
    (tmp_path / "m.toml").write_text(made_up(rates=rates).to_toml())
    out = estimate(capsys, "--graph", graph, "--ranks", "2", "--machine", tmp_path / "m.toml")
    (line,) = [line for line in out.splitlines() if line.startswith(f"without a rate in {tmp_path / 'm.toml'}: ")]
    assert {"gather", "dropout"} <= {*line.replace(";", ",").replace(": ", ", ").split(", ")} and "pack" not in line


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
    "too few numbers": (("--stats", "1e6,2e7"), "expected nodes,edges,features,classes"),
    "words": (("--stats", "a,b,c,d"), "expected nodes,edges,features,classes"),
    "no nodes": (("--stats", "0,10,4,2"), "expected nodes,edges,features,classes"),
    "exponent that is none": (("--stats", "100,1000,4,2,nan"), "expected an exponent between 1 and 10"),
    "endless": (("--stats", "inf,10,4,2"), "expected nodes,edges,features,classes"),
    "not a number": (("--stats", "nan,10,4,2"), "expected nodes,edges,features,classes"),
    "exponent": (("--stats", "100,1000,4,2,0.5"), "expected an exponent between 1 and 10"),
    "cut share": ((*STATS, "--cut-share", "1.5"), "expected a share from 0 to 1"),
    "cut share in words": ((*STATS, "--cut-share", "most"), "expected a share from 0 to 1"),
    "train share": ((*STATS, "--train-share", "-0.1"), "expected a share from 0 to 1"),
    "both": ((*STATS, "--graph", "g.h5"), "expected --graph or --stats, got both"),
    "neither": ((), "--graph is required"),
    "no file": (("--graph", "absent.h5"), "absent.h5"),
    "no ranks": ((*STATS, "--ranks", "0"), "expected numbers of ranks of at least 1"),
    "no machine": ((*STATS, "--machine", "absent.toml"), "cannot read the machine file absent.toml"),
    "ranks per node": ((*STATS, "--ranks-per-node", "0"), "--ranks-per-node"),
    "no folder": ((*STATS, "--json", "absent/o.json"), "there is no directory absent; make it first"),
    "no folder for a picture": ((*STATS, "--plot", "absent/o.png"), "there is no directory absent; make it first"),
    "wrong picture": ((*STATS, "--plot", "o.abc"), "o.abc"),
    "model": ((*STATS, "--model", "gnc"), "gnc"),
    "steps on shares": ((*STATS, "--schedule", "batches", "--steps", "2"), "--stats has no clusters; expected --graph"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_refused(capsys, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, said = ARGUMENTS[name]
    assert said in refused(capsys, "--ranks", "2", *arguments)


def test_fewer_shares_than_steps(capsys, graph):
    """16 clusters, some of which have no training nodes of their own or share the place of another."""
    options = ("--graph", graph, "--ranks", "2", "--schedule", "batches", "--steps", "16")
    assert "shares alone, and estimate counts --steps" in refused(capsys, *options)


def test_more_ranks_than_clusters(capsys, graph):
    error = refused(capsys, "--graph", graph, "--ranks", "2,17", "--auto-partition")
    assert "17 ranks are more than the 16 clusters" in error and "--ranks 17" in error


def test_a_map_that_is_not_there_is_made(capsys, graph):
    """A job is estimated before its map is stored: the first command of the manual once was refused."""
    shown = estimate(capsys, "--graph", graph, "--ranks", "2,3")
    assert "no map is stored for 3 ranks: counted with the one that --auto-partition makes" in shown
    assert "no map 'mtis'" in refused(capsys, "--graph", graph, "--ranks", "2", "--partition", "mtis")
