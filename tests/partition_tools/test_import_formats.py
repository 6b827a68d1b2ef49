"""Every format comes in element by element: edges in their direction with attributes, features, labels, splits."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from partition_helpers import edge_list, node_data, odd_graph, save_npz, split_codes, view, write_csv
from test_links import held

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graph.own_rows import read_dense
from hpcgnn.graphfile.narrow import SCALES, read_scales
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.readers.tables.tables import TableOptions

N = 60


@pytest.mark.parametrize("layout", ["edge_index", "src_dst"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_npz(imports, tmp_path, layout, symmetric):
    src, dst = odd_graph(symmetric=symmetric)
    save_npz(tmp_path / "g.npz", src, dst, N, layout)
    seen = imports(tmp_path / "g.npz")
    assert f"{N} nodes" in seen.said
    assert seen.edges == edge_list(src, dst)
    assert seen.out == (None if symmetric else seen.edges)
    assert seen.meta.undirected == symmetric and seen.meta.source == "g"
    assert seen.meta.num_self_loops == np.count_nonzero(src == dst) > 0
    features, labels, masks = node_data(N)
    np.testing.assert_array_equal(seen.features, features)
    np.testing.assert_array_equal(seen.labels, labels)
    np.testing.assert_array_equal(seen.split, split_codes(masks))
    assert seen.meta.num_classes == 4
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.read("topology/indices").dtype == np.int32
        np.testing.assert_array_equal(file.read("clusters/offsets"), [0, N])
        np.testing.assert_array_equal(file.read("nodes/original_id"), np.arange(N))


def test_bf16_features(cli, tmp_path):
    """The nearest numbers, in two bytes each; HDF5 itself reads them, in the order of the file."""
    x = np.random.default_rng(5).standard_normal((5, 3)).astype(np.float32)
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1, 2, 3], [1, 2, 3, 4]]), x=x)
    cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "--set", "features.dtype=bf16")
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.feature_type == "bfloat16"
        order, dataset = file.read("nodes/original_id"), file.file["nodes/features"]
        expected = torch.from_numpy(x).bfloat16()[order]
        assert dataset.id.get_type().get_size() == 2
        assert np.array_equal(dataset[:], expected.float().numpy())
        assert np.array_equal(file.read("nodes/features"), expected.float().numpy())
        bits = file.read("nodes/features", dtype=np.uint16)
        assert torch.equal(torch.from_numpy(bits.view(np.int16)), expected.view(torch.int16))


@pytest.mark.parametrize("sparse", [False, True])
def test_row_normalize(tmp_path, sparse):
    features, changes = node_data(N)[0], {}
    if sparse:
        rows = scipy.sparse.random(N, 40, 0.1, "csr", np.float32, np.random.default_rng(5))
        parts = {"indptr": rows.indptr, "indices": rows.indices, "data": rows.data, "shape": np.array(rows.shape)}
        changes = {"x": None} | {f"x_{name}": array for name, array in parts.items()}
        features = rows.toarray()
    save_npz(tmp_path / "g.npz", *odd_graph(), N, edge_weight=np.arange(255.0), **changes)
    options = ImportOptions(row_normalize=True, drop_weights=True, feature_dtype="fp32" if sparse else "fp16")
    import_graph(tmp_path / "g.npz", tmp_path / "g.h5", options=options)
    seen = view(tmp_path / "g.h5")
    expected = features / np.maximum(np.abs(features).sum(1, keepdims=True), 1e-30)
    if sparse:
        np.testing.assert_allclose(seen.features, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(seen.features, expected.astype(np.float16), strict=True)
    assert seen.meta.sparse_features == sparse and not seen.meta.weighted


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_int8_of_whole_numbers(imports, tmp_path, dtype):
    counts = np.random.default_rng(3).integers(-128, 128, (N, 3)).astype(dtype)
    save_npz(tmp_path / "g.npz", *odd_graph(), N, x=counts)
    seen = imports(tmp_path / "g.npz", "--set", "features.dtype=int8")
    assert seen.features.dtype == np.int8
    np.testing.assert_array_equal(seen.features, counts)
    with GraphFile(tmp_path / "g.h5") as file:
        assert read_scales(file) is None and file.file.attrs["format_version"] == 2


@pytest.mark.parametrize(
    "options", [(), ("--set", "features.row_normalize=true"), ("--set", "features.standardize=true")]
)
def test_int8_of_real_numbers(cli, tmp_path, options):
    """A byte for each, within half of its column's factor: a power of two, the least that holds the largest number."""
    x = np.random.default_rng(3).standard_normal((N, 5)).astype(np.float32) * [1e-3, 1, 1, 300, 0]
    x[:, 2] = np.where(x[:, 2] > 0, 127, -64)
    save_npz(tmp_path / "g.npz", *odd_graph(), N, x=x)
    for name in ("fp32", "int8"):
        made = tmp_path / f"{name}.h5"
        said = cli("import", tmp_path / "g.npz", "-o", made, "--set", f"features.dtype={name}", *options)[2]
    assert "relative error" in said
    partition_graph(made, [2], method="random-clusters", num_clusters=4, output=tmp_path / "parts.h5")
    for path in (made, tmp_path / "parts.h5"):
        assert cli("verify", path)[0] == 0
        with GraphFile(path) as file, GraphFile(tmp_path / "fp32.h5") as wide:
            order, scales = file.read("nodes/original_id"), read_scales(file)
            codes, exact = file.read("nodes/features"), wide.read("nodes/features")[order]
            everything = [(0, N)]
            held, numbers = (read_dense(file, everything, dtype) for dtype in (torch.int8, torch.float32))
            assert file.file.attrs["format_version"] == 6
        assert codes.dtype == np.int8 and np.array_equal(held, codes) and np.array_equal(numbers, codes * scales)
        assert (np.abs(codes * scales - exact) <= scales / 2).all() and codes.min() >= -127
        filled = np.abs(exact).max(axis=0) > 0
        assert (np.abs(exact).max(axis=0) > 127 / 2 * scales)[filled].all() and (scales[~filled] == 1).all()
        assert options or scales[2] == 1
    with h5py.File(made, "r+") as file:
        file[SCALES][1] = 3
    code, said, _ = cli("verify", made)
    assert code != 0 and "column 1 is no power of two" in said
    with GraphFile(made) as file, pytest.raises(FormatError, match="powers of two"):
        read_scales(file)


@pytest.mark.parametrize("field", ["pattern", "real"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_matrix_market(tmp_path, field, symmetry):
    random = np.random.default_rng(2)
    matrix = scipy.sparse.random(30, 30, 0.1, "coo", np.float64, random)
    matrix.data = np.round(matrix.data, 3) + 0.5
    if symmetry == "symmetric":
        matrix = (matrix + matrix.T).tocoo()
    scipy.io.mmwrite(tmp_path / "m.mtx", matrix, field=field, symmetry=symmetry)
    np.save(tmp_path / "y.npy", np.arange(30) % 3)
    import_graph(tmp_path / "m.mtx", tmp_path / "g.h5", tables=TableOptions(labels=tmp_path / "y.npy"))
    seen = view(tmp_path / "g.h5")
    assert seen.edges == edge_list(matrix.row, matrix.col, None if field == "pattern" else matrix.data)
    assert seen.meta.undirected == (symmetry == "symmetric")


METIS = {
    "11": ("3 2 11 2", ["1 1 2 5", "1 1 1 5 3 7", "9 9 2 7"]),
    "1": ("3 2 1", ["2 5", "1 5 3 7", "2 7"]),
    "100": ("3 2 100", ["4 2", "4 1 3", "4 2"]),
    "": ("3 2", ["2", "1 3", "2"]),
}


@pytest.mark.parametrize("fmt", METIS)
def test_metis(imports, tmp_path, fmt):
    head, lines = METIS[fmt]
    (tmp_path / "g.graph").write_text("\n".join(["% made by hand", head, lines[0], "% and more", *lines[1:]]) + "\n")
    seen = imports(tmp_path / "g.graph")
    assert seen.meta.undirected
    assert seen.edges == edge_list([0, 1, 1, 2], [1, 0, 2, 1], [5, 5, 7, 7] if fmt in ("1", "11") else None)
    assert ("weights of nodes are not read" in seen.said) == (fmt in ("11", "100"))


def ogb_folder(path, labels, binary):
    """The raw files of a small data set in OGB's text or binary layout."""
    src, dst = odd_graph()
    features, _, masks = node_data(N)
    for file, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        write_csv(path / "split" / "time" / f"{file}.csv.gz", np.flatnonzero(masks[name])[:, None])
    if binary:
        (path / "raw").mkdir()
        counts = {"num_nodes_list": np.array([N]), "num_edges_list": np.array([len(src)])}
        rows = {"node_feat": features, "node_year": np.full((N, 1), 2015)}
        np.savez(path / "raw" / "data.npz", edge_index=np.stack([src, dst]), **counts, **rows)
        np.savez(path / "raw" / "node-label.npz", node_label=labels)
    else:
        tables = {
            "edge": np.stack([src, dst], 1),
            "num-node-list": [[N]],
            "num-edge-list": [[len(src)]],
            "node-feat": features,
            "node-label": labels,
        }
        for name, rows in tables.items():
            filled = [["" if value != value else value for value in row] for row in rows]
            write_csv(path / "raw" / f"{name}.csv.gz", filled)
    return src, dst


@pytest.mark.parametrize("binary", [False, True])
def test_ogb_with_missing_labels(imports, tmp_path, binary):
    _, labels, masks = node_data(N)
    stored = labels.astype(np.float32)[:, None]
    stored[split_codes(masks) == 0] = np.nan
    src, dst = ogb_folder(tmp_path / "ogbn_small", stored, binary)
    seen = imports(tmp_path / "ogbn_small")
    assert seen.edges == edge_list(src, dst)
    np.testing.assert_array_equal(seen.features, node_data(N)[0])
    np.testing.assert_array_equal(seen.labels, np.where(split_codes(masks) == 0, -1, labels))
    np.testing.assert_array_equal(seen.split, split_codes(masks))


def test_ogb_multi_label_and_hint(imports, tmp_path):
    labels = np.random.default_rng(0).integers(0, 2, (N, 7))
    src, dst = ogb_folder(tmp_path / "ogbn_proteins", labels, False)
    seen = imports(tmp_path / "ogbn_proteins", "--undirected")
    assert "--undirected" in seen.said
    np.testing.assert_array_equal(seen.labels, labels)
    assert seen.edges == edge_list(*zip(*sorted(set(zip(src, dst)) | set(zip(dst, src)))))


def test_the_name_of_a_graph_is_its_content(tmp_path):
    """Whatever the order and the layout; labels, types of nodes and held-out pairs are part of it."""
    src, dst = odd_graph()
    order, kind = np.random.default_rng(9).permutation(len(src)), np.arange(N) * 7 % 3
    save_npz(tmp_path / "0.npz", src, dst, N)
    save_npz(tmp_path / "1.npz", src[order], dst[order], N, "src_dst")
    links = [held("none"), held("shared"), held("shared", seed=1)]
    others = [{"y": (node_data(N)[1] + 1) % 4}, {"node_type": kind}, {"node_type": kind[::-1]}]
    others += [
        {f"{split}_{part}": array for split, parts in each.items() for part, array in parts.items()} for each in links
    ]
    for number, changes in enumerate(others, 2):
        save_npz(tmp_path / f"{number}.npz", src, dst, N, **changes)
    uuids = [import_graph(tmp_path / f"{number}.npz", tmp_path / f"{number}.h5").uuid for number in range(8)]
    assert uuids[0] == uuids[1] and len(set(uuids)) == 7


def test_random_split(tmp_path):
    options = ImportOptions(fractions=(0.5, 0.2, 0.2), seed=4)
    save_npz(tmp_path / "a.npz", *odd_graph(), N, train_mask=None, val_mask=None, test_mask=None)
    drawn = import_graph(tmp_path / "a.npz", tmp_path / "a.h5", options=options)
    assert np.bincount(drawn.split).tolist() == [6, 30, 12, 12]
    save_npz(tmp_path / "b.npz", *odd_graph(), N)
    kept = import_graph(tmp_path / "b.npz", tmp_path / "b.h5")
    np.testing.assert_array_equal(kept.split, split_codes(node_data(N)[2]))
    with pytest.raises(GraphError, match=r"a split of its own \(train, val, test\).* split.resplit=true replaces it"):
        import_graph(tmp_path / "b.npz", tmp_path / "c.h5", options=options)
    assert not (tmp_path / "c.h5").exists()
    replaced = import_graph(tmp_path / "b.npz", tmp_path / "c.h5", options=replace(options, resplit=True))
    np.testing.assert_array_equal(replaced.split, drawn.split)


@pytest.mark.parametrize("task, missing", [("classification", -1), ("regression", np.nan)])
def test_a_random_split_is_of_the_labelled_nodes(tmp_path, task, missing):
    labels = node_data(N)[1].astype(float)
    labels[::4] = missing
    save_npz(tmp_path / "a.npz", *odd_graph(), N, y=labels, num_classes=None)
    options = ImportOptions(fractions=(0.6, 0.2, 0.2), resplit=True, task=task)
    data = import_graph(tmp_path / "a.npz", tmp_path / "a.h5", options=options)
    assert np.bincount(data.split).tolist() == [15, 27, 9, 9] and not data.split[::4].any()
