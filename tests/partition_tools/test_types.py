"""Types of nodes and edges from a source to the file and through reordering, and the reverse relations."""

import h5py
import numpy as np
import pytest
from partition_helpers import edge_list, graph_data, odd_graph, save_npz, view

from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.import_graph import import_graph
from partition_tools.graph.raw import RawGraph

N = 60
SRC, DST = odd_graph()
KIND = (SRC * 3 + DST) % 4
TYPES = {"edge_type": KIND, "node_type": np.arange(N) * 7 % 3}


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


def test_a_file_whose_node_types_are_cut_is_not_reordered(fails, cli, tmp_path):
    save_npz(tmp_path / "g.npz", SRC, DST, N, **TYPES)
    import_graph(tmp_path / "g.npz", tmp_path / "g.h5")
    with h5py.File(tmp_path / "g.h5", "r+", libver="latest") as file:
        file["nodes/type"].resize(N - 1, axis=0)
    assert "verify" in fails("partition", "add", tmp_path / "g.h5", "--ranks", "2")
    with h5py.File(tmp_path / "g.h5", "r+", libver="latest") as file:
        file["nodes/type"][3] = 8
    assert "nodes/type leaves 0..2" in fails("inspect", tmp_path / "g.h5")
