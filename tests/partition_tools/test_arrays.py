"""Graph files from a program's own arrays and from other libraries' objects: the files that `import` writes, and its
refusals.
"""

import numpy as np
import pytest
import scipy.sparse
import torch
from partition_helpers import edge_list, node_data, odd_graph, save_npz, split_codes, view

import partition_tools
from hpcgnn.errors import ConfigError, FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph

N = 60


def uuid(path):
    with GraphFile(path) as file:
        return file.meta.uuid


@pytest.mark.parametrize(
    "kind", [np.asarray, torch.as_tensor, lambda array: array.tolist()], ids=["numpy", "torch", "list"]
)
@pytest.mark.parametrize("undirected", [False, True])
def test_the_file_is_the_one_that_import_writes(cli, tmp_path, kind, undirected):
    src, dst = odd_graph()
    features, labels, masks = node_data(N)
    save_npz(tmp_path / "g.npz", src, dst, N)
    options = ["--undirected"] if undirected else []
    assert cli("import", tmp_path / "g.npz", "-o", tmp_path / "imported.h5", *options)[0] == 0
    data = partition_tools.save_graph(
        tmp_path / "saved.h5",
        kind(np.stack([src, dst])),
        kind(features),
        kind(labels),
        {name: kind(mask) for name, mask in masks.items()},
        undirected=undirected,
        num_classes=4,
    )
    assert data.uuid == uuid(tmp_path / "saved.h5") == uuid(tmp_path / "imported.h5")  # of all of the content
    assert not list(tmp_path.glob(".*"))


def test_weights_types_and_sparse_features_in_one_call_with_maps(tmp_path):
    src, dst = odd_graph()
    random = np.random.default_rng(5)
    weight, kind, node_type = random.random(len(src)), random.integers(0, 3, len(src)), random.integers(0, 2, N)
    rows = scipy.sparse.random(N, 40, 0.1, "csr", np.float32, random)
    labels = random.integers(0, 2, (N, 6))
    partition_tools.save_graph(
        tmp_path / "g.h5",
        torch.from_numpy(np.stack([src, dst])),
        rows,
        labels,
        {"train": np.arange(10), "val": torch.arange(10, 20), "test": None},
        edge_weight=torch.from_numpy(weight),
        edge_type=kind,
        node_type=node_type,
        edge_type_names=["likes", "knows", "sees"],
        ranks=[2, 1],
    )
    seen = view(tmp_path / "g.h5")
    assert seen.edges == edge_list(src, dst, weight, kind)
    assert seen.meta.sparse_features and seen.meta.task == "multilabel"
    np.testing.assert_array_equal(seen.features, rows.toarray())
    np.testing.assert_array_equal(seen.labels, labels)
    np.testing.assert_array_equal(seen.node_type, node_type)
    np.testing.assert_array_equal(seen.split, [1] * 10 + [2] * 10 + [0] * (N - 20))
    assert seen.meta.type_names["edges"] == ["likes", "knows", "sees"]
    with GraphFile(tmp_path / "g.h5") as file:
        assert {count for name in file.partitionings().values() for count in name} == {1, 2}
    assert set(partition_tools.partition(tmp_path / "g.h5", 3)) == {3}


def test_edges_name_nodes_by_ids_of_ones_own(tmp_path):
    ids = np.array(["bob", "ann", "dan", "eve"])
    split = np.array(["train", "val", "", None], object)
    partition_tools.save_graph(
        tmp_path / "words.h5", [["ann", "eve"], ["bob", "ann"]], np.eye(4), ["x", "y", "x", ""], split, node_ids=ids
    )
    seen = view(tmp_path / "words.h5")
    assert seen.edges == edge_list([1, 3], [0, 1])
    np.testing.assert_array_equal(seen.features, np.eye(4))
    np.testing.assert_array_equal(seen.labels, [0, 1, 0, -1])
    np.testing.assert_array_equal(seen.split, [1, 2, 0, 0])
    assert seen.meta.type_names["classes"] == ["x", "y"]
    partition_tools.save_graph(tmp_path / "numbers.h5", np.array([[70, 9], [5, 70]]), node_ids=[5, 70, 9])
    assert view(tmp_path / "numbers.h5").edges == edge_list([1, 2], [0, 1])


@pytest.mark.parametrize(
    "arguments, options, error, expected",
    [
        ((np.zeros((5, 2), int),), {}, FormatError, r"shape \(2, E\), got \(5, 2\); turn it"),
        (([[0, 9], [1, 1]], np.zeros((3, 2))), {}, GraphError, "edge 1 has source 9, outside the nodes 0..2"),
        (([[0], [1]], None, [0, 1], {"trane": [0]}), {}, FormatError, "split has 'trane'"),
        (([[0], [1]], None, [0, 1], [0, 1]), {}, FormatError, "split must be"),
        (([["a"], ["b"]],), {"node_ids": ["a", "c"]}, FormatError, "names the id b, which node_ids does not have"),
        (([["a"], ["a"]],), {"node_ids": ["a", "a"]}, FormatError, "has the id a twice"),
        (([[0], [1]],), {"undirekted": True}, ConfigError, "unknown argument 'undirekted'"),
        (([[0], [1]],), {"ranks": 0}, ConfigError, "ranks must be positive integers"),
        (([[0], [1]],), {"ranks": [1, 9]}, GraphError, "9 ranks are more than the 2 nodes"),
    ],
)
def test_mistakes_are_said_and_nothing_is_written(tmp_path, arguments, options, error, expected):
    with pytest.raises(error, match=expected):
        partition_tools.save_graph(tmp_path / "g.h5", *arguments, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "dia", "lil", "dok"])
def test_scipy(cli, tmp_path, layout):
    """In Python, and from a file where SciPy writes one."""
    matrix = scipy.sparse.random(N, N, 0.05, "coo", random_state=1).asformat(layout)
    features, labels, masks = node_data(N)
    partition_tools.from_scipy(matrix, tmp_path / "g.h5", features, labels, masks)
    entries, seen = matrix.tocoo(), view(tmp_path / "g.h5")
    there = entries.data != 0  # bsr and dia store zeros
    expected = edge_list(entries.row[there], entries.col[there], entries.data[there])
    assert [edge for edge in seen.edges if edge[3]] == expected
    np.testing.assert_array_equal(seen.split, split_codes(masks))
    if layout not in ("lil", "dok"):
        scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
        assert cli("import", tmp_path / "a.npz", "-o", tmp_path / "file.h5")[0] == 0
        assert view(tmp_path / "file.h5").edges == seen.edges


def test_scipy_without_weights_and_not_square(tmp_path, fails):
    partition_tools.from_scipy(scipy.sparse.eye(4, format="csr") != 0, tmp_path / "ones.h5")
    assert not view(tmp_path / "ones.h5").meta.weighted
    for wrong, expected in ((scipy.sparse.eye(3, 4), "3 x 4"), (np.eye(3), "expected a sparse matrix")):
        with pytest.raises(FormatError, match=expected):
            partition_tools.from_scipy(wrong, tmp_path / "none.h5")
    scipy.sparse.save_npz(tmp_path / "b.npz", scipy.sparse.eye(3, 4))
    assert "(3, 4); expected a real square one" in fails("import", tmp_path / "b.npz", "-o", tmp_path / "h.h5")
    (tmp_path / "c.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:200])
    words = ("import", "--format", "scipy", tmp_path / "c.npz", "-o", tmp_path / "h.h5")
    assert "not a readable" in fails(*words)


def test_pyg(tmp_path):
    Data = pytest.importorskip("torch_geometric.data", reason="PyG is not installed: pip install torch_geometric").Data
    src, dst = odd_graph()
    features, labels, masks = node_data(N)
    arrays = {"x": features, "edge_index": np.stack([src, dst]), "y": labels}
    arrays |= {f"{name}_mask": mask for name, mask in masks.items()}
    data = Data(**{name: torch.from_numpy(array) for name, array in arrays.items()}, num_classes=4)
    partition_tools.from_pyg(data, tmp_path / "g.h5")
    import_graph(save_npz(tmp_path / "g.npz", src, dst, N), tmp_path / "imported.h5")
    assert uuid(tmp_path / "g.h5") == uuid(tmp_path / "imported.h5")
    data.edge_attr = torch.arange(2.0 * len(src)).reshape(-1, 2)
    partition_tools.from_pyg(data, tmp_path / "with.h5")
    partition_tools.save_graph(
        tmp_path / "same.h5", data.edge_index, features, labels, masks, edge_features=data.edge_attr.numpy()
    )
    assert uuid(tmp_path / "with.h5") == uuid(tmp_path / "same.h5") != uuid(tmp_path / "g.h5")
    partition_tools.from_pyg(data, tmp_path / "without.h5", ignore=["edge_attr"])
    assert uuid(tmp_path / "without.h5") == uuid(tmp_path / "g.h5")
