"""Graphs of several types of nodes, as PyG and DGL have them, become one graph with types; each flaw is named."""

import numpy as np
import pytest
import torch
from partition_helpers import edge_list, view

import partition_tools
from hpcgnn.errors import FormatError
from partition_tools.readers.arrays.joined_types import joined
from partition_tools.workspace.progress import Reporter

# The second type has no features; the third is wider than the first.
COUNTS = {"paper": 5, "author": 4, "field": 3}
WIDTHS = {"paper": 2, "field": 3}
ENDS = {
    ("author", "writes", "paper"): [[0, 3, 3], [4, 0, 0]],
    ("paper", "has", "field"): [[1, 2], [2, 0]],
    ("field", "has", "paper"): [[2, 0], [1, 2]],
}
LABELS, TRAIN = [0, 2, -1, 1, 0], [True, False, False, True, False]


def features_of(kind):
    return np.arange(1, 1 + COUNTS[kind] * WIDTHS[kind], dtype=np.float32).reshape(COUNTS[kind], WIDTHS[kind])


def whole():
    """({type: {name: array}}, {relation: {name: array}})."""
    nodes = {kind: {"num_nodes": count} for kind, count in COUNTS.items()}
    for kind in WIDTHS:
        nodes[kind] = {"x": features_of(kind)}
    nodes["paper"] |= {"y": np.array(LABELS), "train_mask": np.array(TRAIN)}
    edges = {relation: {"edge_index": np.array(ends)} for relation, ends in ENDS.items()}
    for number, of_edges in enumerate(edges.values()):
        of_edges["edge_weight"] = np.full(of_edges["edge_index"].shape[1], 1.0 + number)
    return nodes, edges


def test_hetero_data_of_pyg(tmp_path):
    data = pytest.importorskip("torch_geometric.data", reason="PyG is not installed").HeteroData()
    for store in whole():
        for key, arrays in store.items():
            for name, array in arrays.items():
                data[key][name] = array if isinstance(array, int) else torch.from_numpy(array)
    reporter = Reporter()
    partition_tools.from_pyg(data, tmp_path / "g.h5", reporter=reporter)
    widths, without = reporter.warnings[:2]
    assert "2 columns for paper, 3 columns for field: rows are filled with zeros to 3" in widths
    assert "no features for author (4 nodes)" in without
    seen = view(tmp_path / "g.h5")
    src, dst = [3 + 5, 3 + 5, 0 + 5, 1, 2, 2 + 9, 0 + 9], [0, 0, 4, 2 + 9, 0 + 9, 1, 2]
    kinds = [0, 0, 0, 1, 1, 2, 2]
    assert seen.edges == edge_list(src, dst, np.array(kinds) + 1.0, kinds)
    expected = np.zeros((12, 3), np.float32)
    expected[:5, :2], expected[9:] = features_of("paper"), features_of("field")
    np.testing.assert_array_equal(seen.features, expected)
    np.testing.assert_array_equal(seen.node_type, [0] * 5 + [1] * 4 + [2] * 3)
    np.testing.assert_array_equal(seen.labels, LABELS + [-1] * 7)
    np.testing.assert_array_equal(seen.split, TRAIN + [False] * 7)
    assert seen.meta.type_names == {"nodes": list(COUNTS), "edges": ["___".join(relation) for relation in ENDS]}


@pytest.mark.parametrize(
    "of, changes, words",
    [
        ("author", {"num_nodes": None}, "nodes of type author: nothing says how many"),
        ("author", {"train_mask": np.ones(1, bool)}, "train_mask of author has 1 rows, expected 4"),
        (("paper", "has", "field"), {"edge_weight": None}, "some relations have edge_weight and others not"),
        ("field", {"num_nodes": 4}, "x of field has 3 rows, expected 4"),
    ],
)
def test_flaws(of, changes, words):
    nodes, edges = whole()
    (nodes | edges)[of].update(changes)
    with pytest.raises(FormatError, match=words):
        joined("a graph", nodes, edges, Reporter())
