"""Held-out edges that come with a graph: the way into the file, through partitioning, and the messages about them."""

import json
import shutil

import h5py
import numpy as np
import pytest
from partition_helpers import odd_graph

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.given_links import summary
from hpcgnn.graphfile.storage import GraphFile, check_structure
from partition_tools.cli.partition_graph import PartitionOptions, partition_graph
from partition_tools.cli.verification import verification
from partition_tools.interface.arrays import save_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources

N = 60


def held(kind, seed=0):
    """The argument of `save_graph` for one kind of negatives; some of the pairs are edges of `odd_graph` too."""
    random, found = np.random.default_rng(seed), {}
    src, dst = odd_graph(N)
    for split, count in (("val", 12), ("test", 9)):
        pairs = np.concatenate([random.integers(0, N, (count - 3, 2)), np.stack([src, dst], 1)[20:23]])
        if kind == "each":
            ends = {"source_node": pairs[:, 0], "target_node": pairs[:, 1]}
            found[split] = ends | {"target_node_neg": random.integers(0, N, (count, 7))}
        else:
            found[split] = {"edge": pairs} | ({"edge_neg": random.integers(0, N, (30, 2))} if kind == "shared" else {})
    return found


def stored(path):
    """{dataset: array} of all that a file has of held-out edges."""
    with h5py.File(path) as file:
        names = [f"links/{split}/{part}" for split in file.get("links", ()) for part in file[f"links/{split}"]]
        return {name: file[name][:] for name in names}


def expected(given):
    """The datasets expected of the result of `held`."""
    found = {}
    for split, parts in given.items():
        ends = parts["edge"] if "edge" in parts else np.stack([parts["source_node"], parts["target_node"]], 1)
        found[f"links/{split}/edges"] = ends
        for part, name in (("edge_neg", "negatives"), ("target_node_neg", "negative_targets")):
            if part in parts:
                found[f"links/{split}/{name}"] = parts[part]
    return found


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert found[name].dtype == np.int32


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{kind: a partitioned file}."""
    folder = tmp_path_factory.mktemp("held")
    for kind in ("none", "shared", "all"):
        save_graph(folder / f"{kind}.h5", odd_graph(N), np.ones((N, 2)), links=held("each" if kind == "all" else kind))
    for kind in ("none", "shared"):
        partition_graph(folder / f"{kind}.h5", [2, 3], num_clusters=7)
    # With edges that stay on disk.
    resources = PartitionOptions(resources=Resources(memory=4096))
    options = {"method": "random-nodes", "options": resources, "output": folder / "each.h5"}
    partition_graph(folder / "all.h5", [2, 3], num_clusters=7, **options)
    return folder


@pytest.mark.parametrize("kind", ["none", "shared", "each"])
def test_a_file_keeps_what_is_given(cli, files, kind):
    """By original ids, wherever the nodes are put."""
    path, given = files / f"{kind}.h5", held(kind)
    assert_same(stored(path), expected(given))
    with GraphFile(path) as file:
        assert not np.array_equal(file.read("nodes/original_id"), np.arange(N)), "the nodes are in another order"
        check_structure(file)
    code, out, err = cli("verify", path)
    assert code == 0 and "numbers of held-out pairs" in out and "training split" not in out, (out, err)
    src, dst = odd_graph(N)
    there = set(zip(src.tolist(), dst.tolist()))
    info = json.loads(cli("inspect", path, "--json")[1])["held_out_edges"]
    for split, pairs in (("val", 12), ("test", 9)):
        among = sum(tuple(pair) in there for pair in expected(given)[f"links/{split}/edges"].tolist())
        negatives = {"none": 0, "shared": 30, "each": 7}[kind]
        assert among >= 3 and info[split]["among_edges"] == among
        assert (info[split]["pairs"], info[split]["negatives"], info[split]["of"]) == (pairs, negatives, kind)
    assert f"of {kind}" in cli("inspect", path)[1]


HELD = np.array([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    "links, words",
    [
        ({"val": [[1, 0], [3, 4]]}, "1 of 2 held-out pairs of val are edges of the graph in the other direction"),
        ({"val": HELD, "test": [[2, 1], [7, 8]]}, "1 of 3 held-out pairs of val are in the other split as well"),
        ({"val": [[1, 2], [2, 1], [3, 4]]}, "1 of 3 held-out pairs of val repeat another one"),
        ({"test": [[1, 1], [3, 4]]}, "1 of 2 held-out pairs of test join a node with itself"),
        ({"val": {"edge": HELD, "edge_neg": [[1, 0], [7, 9]]}}, "1 of 2 negatives of val are edges of the graph"),
        ({"val": {"edge": HELD, "edge_neg": [[4, 3], [7, 9]]}}, "1 of 2 negatives of val are held-out pairs"),
        (
            {"val": {"source_node": [1, 3], "target_node": [2, 4], "target_node_neg": [[2, 9], [9, 8]]}},
            "1 of 4 negatives of val are held-out pairs",
        ),
    ],
)
def test_pairs_that_distort_metrics(tmp_path, links, words):
    """The import, `inspect` and `verify` count them; a pair and its reverse are the same."""
    reporter = Reporter()
    save_graph(tmp_path / "g.h5", [[0, 7], [1, 8]], num_nodes=10, links=links, reporter=reporter)
    with GraphFile(tmp_path / "g.h5") as file:
        found = [line for split in summary(file).values() for line in split["faults"]]
        checks = verification(file, reporter)
    for lines in (reporter.warnings, found, [check.detail for check in checks]):
        assert any(line.startswith(words) for line in lines), lines
    assert all(check.ok for check in checks)


@pytest.mark.parametrize(
    "change, check, words",
    [
        (("links/val/edges", (4, 1), N), "held-out nodes of val", "row 4 of links/val/edges has a node outside 0..59"),
        (("links/test/negatives", (29, 0), -1), "held-out nodes of test", "row 29 of links/test/negatives"),
        ("among_edges", "numbers of held-out pairs", "among_edges of val: stated 0, found "),
    ],
)
def test_verify_finds_what_is_wrong(cli, files, tmp_path, change, check, words):
    path = shutil.copy(files / "shared.h5", tmp_path / "g.h5")
    with h5py.File(path, "r+", libver="latest") as file:
        if change == "among_edges":
            file["links/val/edges"].attrs["among_edges"] = 0
        else:
            file[change[0]][change[1]] = change[2]
    code, out, _ = cli("verify", path, "--json")
    failed = {each["name"]: each["detail"] for each in json.loads(out)["checks"] if each["ok"] is False}
    assert code == 1 and list(failed) == [check] and words in failed[check]


@pytest.mark.parametrize("fault", ["no pairs", "two kinds", "rows", "columns"])
def test_a_file_that_is_not_as_it_should_be_is_refused(files, tmp_path, fault):
    path = shutil.copy(files / ("each.h5" if fault == "rows" else "shared.h5"), tmp_path / "g.h5")
    with h5py.File(path, "r+", libver="latest") as file:
        if fault == "no pairs":
            del file["links/test/edges"]
        elif fault == "two kinds":
            file["links/test/negative_targets"] = np.zeros((9, 3), np.int32)
        elif fault == "rows":
            del file["links/test/negative_targets"]
            file["links/test/negative_targets"] = np.zeros((8, 7), np.int32)
        else:
            del file["links/test/edges"]
            file["links/test/edges"] = np.zeros((9, 3), np.int32)
    with GraphFile(path) as file, pytest.raises(FormatError, match=r"links/test(/\w+)? has"):
        check_structure(file)


PAIRS = np.array([[0, 1], [2, 3], [4, 5]])


@pytest.mark.parametrize(
    "links, words",
    [
        ({"val": PAIRS.T}, r"val_edge must have shape \(m, 2\), got \(2, 3\); turn it"),
        ({"val": PAIRS + 55}, r"val_edge names node 60, outside the nodes 0\.\.59"),
        ({"train": PAIRS}, "links has 'train'; expected val and test; the edges of the graph are those of training"),
        ({"val": {"edges": PAIRS}}, "links val has 'edges'; expected of: edge, edge_neg"),
        ({"val": {"edge_neg": PAIRS}}, "the held-out edges of val need val_edge, or val_source_node"),
        ({"val": {"edge": PAIRS, "edge_neg": PAIRS[:0]}}, "val_edge_neg is empty"),
        ({"val": {"edge": PAIRS, "edge_neg": PAIRS}, "test": PAIRS}, "negatives of val and test are of two kinds"),
        ({"val": {"edge": PAIRS, "target_node_neg": PAIRS[:2]}}, "val_target_node_neg has 2 rows, expected 3"),
        ({"val": {"edge": PAIRS, "edge_neg": PAIRS, "target_node_neg": PAIRS}}, "val has both val_edge_neg and"),
        ({"val": {"source_node": PAIRS[:, 0], "target_node": PAIRS[:2, 1]}}, "val_source_node has 3 nodes"),
        ({"val": PAIRS.astype(float)}, r"val_edge must be node ids, integers in 2 dimensions, got float64\(3, 2\)"),
    ],
)
def test_what_does_not_go_together(tmp_path, links, words):
    with pytest.raises(GraphError, match=words):
        save_graph(tmp_path / "g.h5", odd_graph(N), np.ones((N, 2)), links=links)
    assert not list(tmp_path.iterdir())


def test_ids_of_the_users_own(tmp_path):
    """Held-out pairs name nodes as the edges do."""
    names = np.array([f"n{number:02}" for number in range(N)])
    given = held("each")
    links = {split: {part: names[array] for part, array in parts.items()} for split, parts in given.items()}
    data = save_graph(tmp_path / "g.h5", names[np.stack(odd_graph(N))], np.ones((N, 2)), node_ids=names, links=links)
    assert_same(stored(tmp_path / "g.h5"), expected(given))
    assert data.links["test"].negative_targets.shape == (9, 7)
    with pytest.raises(FormatError, match="val_edge names the id nobody, which node_ids does not have"):
        save_graph(tmp_path / "h.h5", names[np.stack(odd_graph(N))], node_ids=names, links={"val": [["n00", "nobody"]]})
