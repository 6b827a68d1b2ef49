"""`inspect` counts right; `verify` passes good files and names the faults of bad ones."""

import contextlib
import json
import re
import shutil

import h5py
import numpy as np
import pytest
from partition_helpers import odd_graph, save_npz

from hpcgnn.graphfile.hdf5 import write_attributes
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph

N = 200
TURNED = object()  # stands for the array with its first value changed to another one of its range


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An undirected, weighted, typed graph and a directed one, both partitioned."""
    folder = tmp_path_factory.mktemp("files")
    for name, symmetric in (("undirected", True), ("directed", False)):
        src, dst = odd_graph(N, 900, symmetric=symmetric)
        low, high = np.minimum(src, dst), np.maximum(src, dst)
        save_npz(
            folder / f"{name}.npz",
            src,
            dst,
            N,
            edge_weight=1 + (low * 7 + high) % 5,
            edge_type=(low + high) % 3,
            edge_attr=np.ones((len(src), 2)),
            node_type=np.arange(N) % 4,
            node_type_names=np.array(["north", "east", "south", "west"]),
        )
        import_graph(folder / f"{name}.npz", folder / f"{name}.h5")
        partition_graph(folder / f"{name}.h5", [1, 2, 4])
    return folder


@pytest.fixture
def copy(files, tmp_path):
    def make(name="undirected"):
        return shutil.copy(files / f"{name}.h5", tmp_path / "g.h5")

    return make


@pytest.mark.parametrize("name", ["undirected", "directed"])
def test_good_files_pass(cli, copy, name):
    code, out, _ = cli("verify", copy(name))
    assert code == 0 and "sound" in out and "FAILED" not in out and "skipped" not in out
    code, out, _ = cli("verify", copy(name), "--json")
    report = json.loads(out)
    assert code == 0 and report["ok"] and all(check["ok"] for check in report["checks"])


def failed(cli, path):
    code, out, err = cli("verify", path, "--json")
    assert code == 1, err
    return {check["name"]: check["detail"] for check in json.loads(out)["checks"] if check["ok"] is False}


def test_one_flipped_byte(cli, copy):
    path = copy()
    with h5py.File(path) as file:
        place = file["nodes/features"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert "corrupted" in failed(cli, path)["nodes/features"]


@contextlib.contextmanager
def opened(path):
    with h5py.File(path, "r+", libver="latest") as file:
        yield file


@pytest.mark.parametrize(
    "name, dataset, index, value, check, detail",
    [
        ("undirected", "topology/indices", 5, N, "index range", "edge 5"),
        ("undirected", "topology/indptr", 7, 5000, "row pointers", "falls at 7"),
        ("undirected", "topology/indptr", 0, 1, "row pointers", "begin with 0"),
        ("undirected", "edges/weight", 11, 77, "symmetric as stated", "weights"),
        ("undirected", "edges/weight", 11, np.nan, "finite weights", "edge 11"),
        ("undirected", "edges/type", 11, -1, "edge types", "edge 11"),
        ("directed", "edges_out/type", 11, 3, "edge types_out", "edge 11"),
        ("undirected", "edges/type", slice(0, None), TURNED, "symmetric as stated", "types"),
        ("directed", "edges_out/type", slice(0, None), TURNED, "topology_out is the transpose", "types"),
        ("undirected", "nodes/type", 9, 4, "node types", "node 9"),
        ("directed", "edges_out/weight", 11, 77, "topology_out is the transpose", "weights"),
        ("directed", "topology_out/indices", 11, N, "index range_out", "edge 11"),
        ("undirected", "nodes/features", (9, 2), np.nan, "finite features", "node 9"),
        ("undirected", "edges/features", (5, 1), np.nan, "finite edge features", "edge 5"),
        ("undirected", "nodes/labels", 9, 4, "labels in classes", "label 9"),
        ("undirected", "nodes/split", 9, 4, "split values", "node 9"),
        ("undirected", "nodes/original_id", 9, N, "original_id is a permutation", "node 9"),
        ("undirected", "nodes/original_id", slice(0, 2), 7, "original_id is a permutation", "exactly once"),
        ("undirected", "clusters/offsets", 2, 0, "cluster offsets", "falls"),
        ("undirected", "clusters/graph/weight", 2, 999, "cluster graph", "agree"),
        ("undirected", "partitionings/metis/4", 0, 4, "map metis/4", "not a map"),
        ("undirected", "partitionings/metis/4", slice(None), 1, "map metis/4", "3 of 4 ranks"),
    ],
)
def test_wrong_contents(cli, copy, name, dataset, index, value, check, detail):
    path = copy(name)
    with opened(path) as file:
        if value is TURNED:
            value = file[dataset][:]
            value[0] = (value[0] + 1) % 3
        file[dataset][index] = value
    assert detail in failed(cli, path)[check]


@pytest.mark.parametrize("change", ["shift", "turn"])
def test_broken_symmetry_and_order(cli, copy, change):
    path = copy()
    with opened(path) as file:
        indptr, indices = file["topology/indptr"][:], file["topology/indices"][:]
        row = int(np.argmax(np.diff(indptr) > 3))
        there = slice(indptr[row], indptr[row + 1])
        kept = indices[there]
        file["topology/indices"][there] = np.sort((kept + 1) % N) if change == "shift" else kept[::-1]
    found = failed(cli, path)
    assert "node" in found["symmetric as stated"] if change == "shift" else f"node {row}" in found["sorted rows"]


@pytest.mark.parametrize("dataset", ["nodes/labels", "nodes/split", "nodes/type"])
def test_missing_and_misshapen(cli, copy, dataset):
    path = copy()
    with opened(path) as file:
        if dataset == "nodes/labels":
            del file[dataset]
        else:
            file[dataset].resize(N - 1, axis=0)
    assert ("missing" if dataset == "nodes/labels" else "shape") in failed(cli, path)[dataset]


@pytest.mark.parametrize("what, count", [("types of nodes", 4), ("types of edges", 3), ("classes", 4)])
def test_figures_and_names_that_are_wrong(cli, copy, what, count):
    path = copy()
    with opened(path) as file:
        file["partitionings/metis/4"].attrs["halo_rows_total"] = 1
        file.attrs["num_self_loops"] = 0
        write_attributes(file, type_names=json.dumps({what.split()[-1]: ["north", "east"]}))
    found = failed(cli, path)
    assert set(found) == {"map metis/4", "self loops", "numbers and names of types"}
    assert found["numbers and names of types"] == f"{count} {what} but 2 names of them"
    assert json.loads(cli("inspect", path, "--json")[1])["node_types"] == dict.fromkeys("0123", N // 4)


@pytest.mark.parametrize("name", ["undirected", "directed"])
def test_inspect(cli, files, name):
    code, out, _ = cli("inspect", files / f"{name}.h5", "--json")
    info = json.loads(out)
    with np.load(files / f"{name}.npz") as raw:
        src, dst = raw["edge_index"]
        labels, train = raw["y"], raw["train_mask"]
    degrees = np.bincount(dst, minlength=N)
    assert code == 0 and (info["nodes"], info["directed_edges"]) == (N, len(src))
    assert info["undirected"] == (name == "undirected") and info["self_loops"] == np.count_nonzero(src == dst)
    assert info["in_degree"] == {
        "min": degrees.min(),
        "median": np.median(degrees),
        "mean": degrees.mean(),
        "max": degrees.max(),
        "isolated": N - len(set(src) | set(dst)),
    }
    assert info["node_types"] == dict.fromkeys(("north", "east", "south", "west"), N // 4)
    kinds = (np.minimum(src, dst) + np.maximum(src, dst)) % 3
    assert info["edge_types"] == {str(kind): np.count_nonzero(kinds == kind) for kind in range(3)}
    assert info["class_sizes"] == np.bincount(labels).tolist() and info["splits"]["train"] == train.sum()
    assert info["clusters"]["count"] == 50 and info["clusters"]["nodes"]["mean"] == N / 50
    maps = info["partitionings"]["metis"]
    assert set(maps) == {"1", "2", "4"} and maps["1"]["halo_rows_total"] == 0
    assert maps["4"]["halo_rows_total"] > 0
    with GraphFile(files / f"{name}.h5") as file:
        offsets, indptr = file.read("clusters/offsets"), file.read("topology/indptr")
        edges = np.bincount(file.cluster_map("metis", 4)[0], np.diff(indptr[offsets]), 4)
    assert maps["4"]["ranks_without_edges"] == 0 and maps["4"]["busiest_rank"] == edges.argmax()
    mean, most = len(src) / 4, edges.max()
    assert maps["4"]["balance"]["edges"] == {"mean": mean, "largest": most, "imbalance": most / mean}
    code, out, _ = cli("inspect", files / f"{name}.h5")
    rows = maps["4"]["balance"]["halo_rows_received"]
    shown = rf"metis +4 .* {rows['largest'] / rows['mean']:.3f} +{most:,.0f} \(rank {edges.argmax()}\) +0 "
    assert code == 0 and "isolated" in out and "(rows received)" in out and re.search(shown, out)
    assert "north 50, east 50, south 50, west 50" in out and "edge types" in out


def test_inspect_computes_figures_that_are_not_stored(cli, copy):
    path = copy("directed")
    stored = json.loads(cli("inspect", path, "--json")[1])["partitionings"]["metis"]["4"]
    with opened(path) as file:
        file["partitionings/metis/4"].attrs.clear()
    found = json.loads(cli("inspect", path, "--json")[1])["partitionings"]["metis"]["4"]
    assert found == {key: stored[key] for key in found}
