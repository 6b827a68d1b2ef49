"""A partitioned file is the imported graph in another order, and its maps have their recorded costs."""

import numpy as np
import pytest
from partition_helpers import halo_oracle, odd_graph, save_npz, view

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import PartitionOptions, default_clusters, partition_graph, rank_counts
from partition_tools.graph import quality

N = 200


def make(path, kind):
    """One of several odd graphs, as a graph file that is not clustered yet."""
    symmetric = kind in ("undirected", "loops")
    src, dst = odd_graph(N, 900, symmetric=symmetric)
    changes = {}
    if kind == "directed":
        random = np.random.default_rng(1)
        changes = {"edge_weight": random.random(len(src)), "edge_type": random.integers(0, 3, len(src))}
        changes |= {"node_type": np.arange(N) * 7 % 3, "edge_type_names": np.array(list("abcd"))}
    if kind == "loops":
        parts = {"indptr": np.arange(N + 1) * 2, "indices": np.tile([3, 1], N), "data": np.arange(2 * N)}
        changes = {"x": None, "x_shape": np.array([N, 5])} | {f"x_{name}": array for name, array in parts.items()}
    if kind == "edgeless":
        src, dst = src[:0], dst[:0]
        changes = {"y": np.random.default_rng(2).integers(0, 2, (N, 3)), "num_classes": None}
    save_npz(path.with_suffix(".npz"), src, dst, N, **changes)
    import_graph(path.with_suffix(".npz"), path, options=ImportOptions(self_loops="add" if kind == "loops" else "keep"))
    return path


def assert_same_graph(one, other):
    assert (one.edges, one.out) == (other.edges, other.out)
    for name in ("features", "labels", "split", "node_type"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.meta.uuid == other.meta.uuid and one.meta.type_names == other.meta.type_names


def assert_maps(path, name, edges, balance=1.05):
    """Stored maps are onto, balanced, and their figures agree with sets of nodes."""
    with GraphFile(path) as file:
        original, offsets = file.read("nodes/original_id"), file.read("clusters/offsets")
        clusters = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        assert (np.diff(offsets) > 0).all()
        for count in file.partitionings()[name]:
            parts, figures = file.cluster_map(name, count)
            rank_of = np.empty(len(original), int)
            rank_of[original] = parts[clusters]
            sizes = np.bincount(rank_of, minlength=count)
            assert sizes.min() > 0 and sizes.max() / sizes.mean() <= balance
            cut, halo, sent = halo_oracle(edges, rank_of, count)
            found = tuple(figures[key] for key in ("edge_cut", "halo_rows_total", "halo_rows_max"))
            assert found == (cut, sum(halo), max(halo))
            assert (list(figures["halo_rows_by_rank"]), list(figures["sent_rows_by_rank"])) == (halo, sent)
            back = halo_oracle([(s, d, t, w) for d, s, t, w in edges], rank_of, count)[1]
            assert figures["halo_rows_backward_total"] == (sum(halo) if file.meta.undirected else sum(back))
            loads = np.bincount([rank_of[d] for d, *_ in edges], minlength=count)
            np.testing.assert_allclose(figures["imbalance_edges"], loads.max() / loads.mean() if len(edges) else 1)
            np.testing.assert_allclose(figures["imbalance_nodes"], sizes.max() / sizes.mean())
            assert figures["num_ranks"] == count and figures["method"] and "numpy" in figures["versions"]


@pytest.mark.parametrize("kind", ["undirected", "directed", "loops", "edgeless"])
def test_the_graph_stays_the_same(cli, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(quality, "BLOCK", 7)
    path = make(tmp_path / "g.h5", kind)
    before = view(path)
    code, out, err = cli("partition", "add", path, "--ranks", "1,2,3,4", "--seed", 5)
    assert code == 0 and "halo rows" in out, err
    after = view(path)
    assert_same_graph(before, after)
    assert after.meta.num_clusters == default_clusters(N, 4) == 50
    assert_maps(path, "metis", after.edges)
    assert cli("verify", path)[0] == 0
    code, _, _ = cli("partition", "add", path, "--ranks", "2,5", "--method", "random-clusters")
    assert code == 0
    assert_maps(path, "random-clusters", after.edges, 1.15)
    assert_maps(path, "metis", after.edges)
    code, _, _ = cli("partition", "add", path, "--ranks", "3", "--method", "random-nodes", "-o", tmp_path / "r.h5")
    assert code == 0
    shuffled = view(tmp_path / "r.h5")
    assert_same_graph(before, shuffled)
    assert_maps(tmp_path / "r.h5", "random-nodes", shuffled.edges)
    assert cli("verify", tmp_path / "r.h5")[0] == 0


def test_maps_are_added_and_replaced_without_reordering(tmp_path):
    path = make(tmp_path / "g.h5", "undirected")
    partition_graph(path, [2], num_clusters=20, options=PartitionOptions(seed=1))
    before = order_of(path)
    results = partition_graph(path, [2, 4], name="mine", options=PartitionOptions(balance="train", seed=2))
    assert results[4]["balance"] == "train"
    partition_graph(path, [2], num_clusters=20, options=PartitionOptions(seed=7))
    np.testing.assert_array_equal(order_of(path), before)
    with GraphFile(path) as file:
        assert file.partitionings() == {"metis": [2], "mine": [2, 4]}
        assert file.cluster_map("metis", 2)[1]["seed"] == 7
        split, parts = file.read("nodes/split"), file.cluster_map("mine", 4)[0]
        offsets = file.read("clusters/offsets")
        train = np.bincount(parts, [np.count_nonzero(split[a:b] == 1) for a, b in zip(offsets, offsets[1:])])
        assert train.max() / train.mean() < 1.15


def test_a_new_file_leaves_the_old_one_alone(cli, tmp_path):
    """With other clusters the maps of before are not in it."""
    path = make(tmp_path / "g.h5", "undirected")
    assert cli("partition", "add", path, "--ranks", 2)[0] == 0
    raw = path.read_bytes()
    assert cli("partition", "add", path, "--ranks", 3, "-o", tmp_path / "b.h5")[0] == 0
    assert cli("partition", "add", path, "--ranks", 4, "--clusters", 10, "-o", tmp_path / "c.h5")[0] == 0
    assert path.read_bytes() == raw
    with GraphFile(tmp_path / "b.h5") as b, GraphFile(tmp_path / "c.h5") as c:
        found = [(file.meta.num_clusters, file.partitionings()) for file in (b, c)]
    assert found == [(50, {"metis": [2, 3]}), (10, {"metis": [4]})]
    assert_same_graph(view(path), view(tmp_path / "c.h5"))


def order_of(path):
    with GraphFile(path) as file:
        return file.read("nodes/original_id")


def test_partitioning_is_reproducible(tmp_path):
    found = []
    for name, seed in zip("abc", (1, 1, 2)):
        path = make(tmp_path / f"{name}.h5", "directed")
        partition_graph(path, [3], options=PartitionOptions(seed=seed))
        with GraphFile(path) as file:
            found.append([*order_of(path), *file.cluster_map("metis", 3)[0]])
    assert found[0] == found[1] != found[2]


def test_cluster_counts():
    assert default_clusters(10**6, 8) == 1000 and default_clusters(10**6, 64) == 4096
    assert default_clusters(10**8, 8) == 8192 and default_clusters(10**8, 512) == 64 * 512
    assert default_clusters(400, 8) == 100 and default_clusters(20, 16) == 16
    assert rank_counts("8,1,2,2") == [1, 2, 8]


ERRORS = {
    **dict.fromkeys(("--ranks=0", "--ranks=two", "--ranks=2,-1", "--ranks=", "--ranks=2,,3"), "positive integers"),
    "--ranks 201": "more than the 200 nodes",
    "--ranks 8 --clusters 4": "ranks are more than the 4 clusters",
    "--ranks 2 --clusters 201": "more than the 200 nodes",
    "--ranks 2 --clusters 0": "at least 1",
    "--ranks 2 --method random-nodes": "-o FILE",
    "--ranks 2 --name a/b": "slash",
    "--ranks 3 --method file": "needs --set file.path",
    "--ranks 2 --method magic": "random-clusters",
    "--ranks 2 --seed -1": "seed must be from 0 to 2^31",
    "--ranks 2 --method restreaming": "gone: --method kaminpar",
}


def test_errors(cli, fails, tmp_path):
    path = make(tmp_path / "g.h5", "undirected")
    for words, message in ERRORS.items():
        assert message in fails("partition", "add", path, *words.split())
    assert "no graph file" in fails("partition", "add", tmp_path / "none.h5", "--ranks", 2)
    assert "times the mean" in cli("partition", "add", path, "--ranks", 7, "--clusters", 8, "-o", tmp_path / "u.h5")[2]
    partition_graph(path, [2], num_clusters=10)
    assert "already has 10 clusters" in fails("partition", "add", path, "--ranks", 2, "--clusters", 20)
    assert "ranks are more than the 10 clusters" in fails("partition", "add", path, "--ranks", 11)
    (tmp_path / "there.h5").write_text("precious")
    assert "--force" in fails("partition", "add", path, "--ranks", 2, "-o", tmp_path / "there.h5")


def test_maps_are_listed_and_removed(cli, fails, tmp_path):
    path = make(tmp_path / "g.h5", "undirected")
    assert "has no maps" in cli("partition", "list", path)[1]
    for name in ("one", "two"):
        assert cli("partition", "add", path, "--ranks", "2,3,4", "--name", name)[0] == 0
    before = view(path)
    assert cli("partition", "remove", path, "one", "--ranks", 3)[0] == 0
    assert cli("partition", "remove", path, "two")[0] == 0
    with GraphFile(path) as file:
        assert file.partitionings() == {"one": [2, 4]}
    assert_same_graph(before, view(path))
    listed = [line.split()[:2] for line in cli("partition", "list", path)[1].splitlines()[2:]]
    assert listed == [["one", "2"], ["one", "4"]]
    assert cli("verify", path)[0] == 0
    assert "it has one for 2, 4 ranks" in fails("partition", "remove", path, "one", "--ranks", 3)
    assert "it has no two" in fails("partition", "remove", path, "two")
    assert f"`python -m partition_tools partition add {path} --ranks" in fails("partition", path, "--ranks", 2)


def test_parts_of_another_program(cli, fails, tmp_path):
    path = make(tmp_path / "g.h5", "directed")
    parts, before = np.random.default_rng(0).integers(0, 3, N), view(path)
    np.save(tmp_path / "parts.npy", parts)
    given = ("--method", "file", "--set", f"file.path={tmp_path / 'parts.npy'}")
    assert "say --ranks 3" in fails("partition", "add", path, "--ranks", 2, *given)
    assert cli("partition", "add", path, "--ranks", 3, *given)[0] == 0
    with GraphFile(path) as file:
        clusters = np.repeat(file.cluster_map("file", 3)[0], np.diff(file.read("clusters/offsets")))
        np.testing.assert_array_equal(clusters, parts[file.read("nodes/original_id")])
    assert_same_graph(before, view(path))
    assert "write a new file" in fails("partition", "add", path, "--ranks", 3, *given)
    assert cli("partition", "add", path, "--ranks", 3, *given, "-o", tmp_path / "h.h5")[0] == 0
