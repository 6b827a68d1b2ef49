"""Types of nodes and edges from a source to the file and through reordering, and the reverse relations."""

import h5py
import numpy as np
import pytest
from partition_helpers import edge_list, graph_data, odd_graph, save_npz, view

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.import_graph import import_graph
from partition_tools.graph.loading import load_graph
from partition_tools.graph.raw import RawGraph
from partition_tools.partitioners.reorder import reordered
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.working import Resources

N = 60
SRC, DST = odd_graph()
KIND = (SRC * 3 + DST) % 4
NODE_TYPE = np.arange(N) * 7 % 3
TYPES = {"edge_type": KIND, "node_type": NODE_TYPE}


@pytest.mark.parametrize("method", ["metis", "random-nodes"])
def test_types_stay_with_their_nodes_and_edges(cli, tmp_path, method):
    save_npz(tmp_path / "g.npz", SRC, DST, N, **TYPES, edge_type_names=np.array(list("abcde")))
    assert cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")[0] == 0
    words = ("--ranks", "1,3", "--method", method, "-o", tmp_path / "p.h5")
    assert cli("partition", "add", tmp_path / "g.h5", *words)[0] == 0
    for name in ("g.h5", "p.h5"):
        seen = view(tmp_path / name)
        assert seen.edges == seen.out == edge_list(SRC, DST, None, KIND)
        np.testing.assert_array_equal(seen.node_type, NODE_TYPE)
        assert (seen.meta.num_edge_types, seen.meta.num_node_types) == (5, 3)
        assert seen.meta.type_names == {"edges": list("abcde")}
        assert cli("verify", tmp_path / name)[0] == 0
    with GraphFile(tmp_path / "p.h5") as file:
        assert (file.read("nodes/type") != NODE_TYPE).any()


def test_reordering_twice_is_reordering_once(tmp_path):
    """Node types in the file are read back and permuted again when a partitioned file gets other clusters."""
    save_npz(tmp_path / "g.npz", SRC, DST, N, **TYPES)
    import_graph(tmp_path / "g.npz", tmp_path / "g.h5")
    with GraphFile(tmp_path / "g.h5") as file:
        data = load_graph(file)
        order = np.random.default_rng(0).permutation(N)
        how = np.array([0, N]), Scratch(tmp_path / "work", 0, 1 << 20), {}
        once = reordered(data, order, *how)
        twice = reordered(once, order[::-1], *how)
    for result in (once, twice):
        np.testing.assert_array_equal(result.node_type, NODE_TYPE[result.original_id])
    assert (twice.node_type != once.node_type).any()


def test_the_name_of_a_graph_depends_on_its_node_types(tmp_path):
    uuids = set()
    for node_type in (None, NODE_TYPE, NODE_TYPE[::-1]):
        save_npz(tmp_path / "g.npz", SRC, DST, N, node_type=node_type)
        uuids.add(import_graph(tmp_path / "g.npz", tmp_path / "g.h5", force=True).uuid)
    assert len(uuids) == 3


@pytest.mark.parametrize("names", [None, list("abcde")])
@pytest.mark.parametrize("self_loops", ["keep", "add"])
def test_add_reverse(tmp_path, names, self_loops):
    """Type r becomes R + r the other way round; with names R counts the one that no edge has."""
    count = 5 if names else 4
    weight = np.linspace(0.5, 1.5, len(SRC))
    changes = TYPES | {"edge_weight": weight, "edge_type_names": None if names is None else np.array(names)}
    save_npz(tmp_path / "g.npz", SRC, DST, N, **changes)
    import_graph(tmp_path / "g.npz", tmp_path / "g.h5", options=ImportOptions(add_reverse=True, self_loops=self_loops))
    seen = view(tmp_path / "g.h5")
    expected = edge_list(SRC, DST, weight, KIND) + edge_list(DST, SRC, weight, KIND + count)
    if self_loops == "add":
        alone = sorted(set(range(N)) - set(SRC[SRC == DST]))
        expected += edge_list(alone, alone, None, [2 * count] * len(alone))
    assert seen.edges == seen.out == sorted(expected)
    assert seen.meta.num_edge_types == 2 * count + (self_loops == "add")
    assert not seen.meta.undirected and seen.meta.num_self_loops == sum(s == d for d, s, _, _ in expected)
    if names:
        loops = ["self loop"] if self_loops == "add" else []
        assert seen.meta.type_names["edges"] == names + [f"{name} reversed" for name in names] + loops


def test_self_loops_take_no_name_of_another_type():
    """The last named type has no edges here; loops once took the number after the largest one used."""
    raw = RawGraph(
        np.array([0, 1]), np.array([1, 0]), 3, type=np.array([0, 0]), type_names={"edges": ["used", "unused"]}
    )
    data = graph_data(raw, self_loops="add")
    assert data.edges.type.tolist() == [2, 0, 0, 2, 2] and data.type_names == {"edges": ["used", "unused", "self loop"]}


def test_add_reverse_needs_types_and_excludes_undirected(fails, tmp_path):
    save_npz(tmp_path / "g.npz", SRC, DST, N)
    words = ("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--set", "edges.add_reverse=true")
    assert "--undirected" in fails(*words)
    save_npz(tmp_path / "g.npz", SRC, DST, N, **TYPES)
    assert "choose one" in fails(*words, "--undirected")
    save_npz(tmp_path / "g.npz", SRC, DST[:-1], N, "src_dst", **TYPES)
    assert "one length" in fails(*words)


def write_lines(path, lines):
    path.write_text("\n".join(lines) + "\n")


def test_edge_types_that_are_words(tmp_path):
    """Numbered in their sorted order and kept as names, also where a text is too large to be read at once."""
    words = np.array(["likes", "buys", "sees", "asks"])[KIND]
    names, numbers = np.unique(words, return_inverse=True)
    save_npz(tmp_path / "numbers.npz", SRC, DST, N, edge_type=numbers, edge_type_names=names)
    save_npz(tmp_path / "words.npz", SRC, DST, N, edge_type=words)
    write_lines(tmp_path / "words.csv", ["src,dst,type", *(f"{s},{d},{w}" for s, d, w in zip(SRC, DST, words))])
    np.save(tmp_path / "x.npy", np.ones((N, 1)))
    found, reporter = [], Reporter()
    for name, tables in (
        ("numbers.npz", None),
        ("words.npz", None),
        ("words.csv", TableOptions(features=tmp_path / "x.npy")),
    ):
        how = {"tables": tables, "force": True, "resources": Resources(4096, None, reporter)}
        import_graph(tmp_path / name, tmp_path / "g.h5", **how)
        seen = view(tmp_path / "g.h5")
        assert seen.meta.type_names == {"edges": ["asks", "buys", "likes", "sees"]}
        found.append(seen.edges)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("keyed", [False, True])
def test_node_types_from_a_table(cli, tmp_path, keyed):
    """Words are numbered in their sorted order and kept as names."""
    words = np.array(["town", "road", "river"])[NODE_TYPE]
    write_lines(tmp_path / "e.txt", [f"{s} {d}" for s, d in zip(SRC, DST)])
    rows = [f"{node},{words[node]}" for node in reversed(range(N))] if keyed else list(words)
    write_lines(tmp_path / "t.csv", ["# what a node is", "id,type" if keyed else "type", *rows])
    code, _, err = cli(
        "import", tmp_path / "e.txt", "-o", tmp_path / "g.h5", "--set", f"tables.node_types={tmp_path / 't.csv'}"
    )
    assert code == 0, err
    seen = view(tmp_path / "g.h5")
    assert seen.meta.type_names == {"nodes": ["river", "road", "town"]}
    np.testing.assert_array_equal(np.array(["river", "road", "town"])[seen.node_type], words)


def test_node_types_from_an_array_and_wrong_tables(cli, fails, tmp_path):
    write_lines(tmp_path / "e.txt", [f"{s} {d}" for s, d in zip(SRC, DST)])
    np.save(tmp_path / "t.npy", NODE_TYPE)
    words = ("import", tmp_path / "e.txt", "-o", tmp_path / "g.h5", "--force", "--set")
    assert cli(*words, f"tables.node_types={tmp_path / 't.npy'}")[0] == 0
    np.testing.assert_array_equal(view(tmp_path / "g.h5").node_type, NODE_TYPE)
    np.save(tmp_path / "t.npy", np.stack([NODE_TYPE, NODE_TYPE], 1))
    assert "one column" in fails(*words, f"tables.node_types={tmp_path / 't.npy'}")
    write_lines(tmp_path / "t.csv", ["id,type"] + [f"{node},{NODE_TYPE[node]}" for node in range(N - 1) if node != 4])
    assert "node 4 has no row in the table of node types" in fails(*words, f"tables.node_types={tmp_path / 't.csv'}")
    write_lines(tmp_path / "t.csv", ["id,type", *(f"{node},town" if node != 1 else "1," for node in range(N))])
    assert "node 1 has no type" in fails(*words, f"tables.node_types={tmp_path / 't.csv'}")
    save_npz(tmp_path / "g.npz", SRC, DST, N)
    assert "tables.node_types is no option of the format" in fails(
        "import", tmp_path / "g.npz", "-o", tmp_path / "n.h5", "--set", f"tables.node_types={tmp_path / 't.csv'}"
    )


def test_a_file_whose_node_types_are_cut_is_not_reordered(fails, cli, tmp_path):
    save_npz(tmp_path / "g.npz", SRC, DST, N, **TYPES)
    import_graph(tmp_path / "g.npz", tmp_path / "g.h5")
    with h5py.File(tmp_path / "g.h5", "r+", libver="latest") as file:
        file["nodes/type"].resize(N - 1, axis=0)
    assert "verify" in fails("partition", "add", tmp_path / "g.h5", "--ranks", "2")
    with h5py.File(tmp_path / "g.h5", "r+", libver="latest") as file:
        file["nodes/type"][3] = 8
    assert "nodes/type leaves 0..2" in fails("inspect", tmp_path / "g.h5")
