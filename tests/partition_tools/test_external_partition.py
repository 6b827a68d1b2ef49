"""Clusters and order of graphs that stay on disk, against what the same functions give for graphs in memory."""

from pathlib import Path

import numpy as np
import pytest
from partition_helpers import drawn, graph_data

from hpcgnn.graphfile.schema import Edges
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.generators.spec import Spec
from partition_tools.graph.loading import load_graph
from partition_tools.graph.raw import RawGraph
from partition_tools.graph.writing import write_with_bar
from partition_tools.out_of_core import sorting
from partition_tools.out_of_core.scattered import Scattered
from partition_tools.partitioners import external_dissection as dissection
from partition_tools.partitioners import kaminpar, metis, pattern
from partition_tools.partitioners.dissection import dissected, whole_graph
from partition_tools.partitioners.external_dissection import external_clusters
from partition_tools.partitioners.pattern import parts_of, whole_pattern
from partition_tools.partitioners.reorder import reordered
from partition_tools.partitioners.request import ClusterRequest
from partition_tools.workspace.scratch import Scratch


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(sorting, "MOST_RUN", 301)
    monkeypatch.setattr(sorting, "MOST_RANGE", 207)
    monkeypatch.setattr(pattern, "BLOCK", 150)


def odd_graph(directed, typed=True, n=70, count=900, seed=0):
    """Parallel edges, self loops, isolated nodes, hubs; features, labels of a kind."""
    random = np.random.default_rng(seed)
    src, dst = (
        (random.integers(0, n - 9, count) * random.random(count)).astype(np.int64),
        random.integers(0, n - 9, count),
    )
    if not directed:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    kind = (src + dst) % 3 if typed else None
    weight = ((src * dst) % 7).astype(np.float32) if typed else None
    features = random.standard_normal((n, 3)).astype(np.float32)
    return graph_data(RawGraph(src, dst, n, features, random.integers(0, 4, n), {}, 4, weight, kind))


def scratch_of(tmp_path, memory=1 << 20):
    return Scratch(tmp_path / "work", 0, memory)


@pytest.mark.parametrize("directed", [False, True])
def test_the_pattern_is_that_of_memory(tmp_path, directed):
    data = odd_graph(directed)
    expected = whole_graph(data.edges, data.edges_out).graph
    expected.sort_indices()
    found = whole_pattern(data.edges, data.edges_out, scratch_of(tmp_path))
    assert np.array_equal(found.indptr, expected.indptr) and np.array_equal(found.indices, expected.indices)
    assert np.array_equal(np.concatenate(list(found.blocks())), expected.indices)


@pytest.mark.parametrize("num_parts", [1, 3, 8])
def test_parts_are_the_submatrices(tmp_path, num_parts):
    data = odd_graph(False)
    scratch = scratch_of(tmp_path)
    whole = whole_pattern(data.edges, None, scratch)
    side = np.random.default_rng(1).integers(0, num_parts, data.num_nodes)
    matrix = whole_graph(data.edges, None).graph
    parts = parts_of(whole, side, num_parts)
    for index, part in enumerate(parts):
        inside = np.flatnonzero(side == index)
        expected = matrix[inside][:, inside]
        expected.sort_indices()
        assert np.array_equal(part.nodes, inside)
        assert np.array_equal(part.indptr, expected.indptr) and np.array_equal(part.indices, expected.indices)
    whole.forget()
    again = parts_of(whole, side, num_parts)  # what is finished needs the whole no more
    assert all(np.array_equal(one.indices, other.indices) for one, other in zip(parts, again))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("memory", [1 << 20, 20_000])
def test_the_order_of_a_graph_file_is_changed_as_in_memory(tmp_path, directed, memory):
    """Written by the same writer: the files are the same, bit for bit."""
    data = odd_graph(directed)
    order = np.random.default_rng(2).permutation(data.num_nodes)
    offsets, tools = np.array([0, 30, data.num_nodes]), {"numpy": np.__version__}
    write_with_bar(tmp_path / "g.h5", data)
    with GraphFile(tmp_path / "g.h5") as file:
        roomy = Scratch(tmp_path / "roomy", 0, 1 << 30)
        write_with_bar(tmp_path / "a.h5", reordered(load_graph(file), order, offsets, roomy, tools))
        assert not any(roomy.directory.rglob("*.npy")), "all of it fits"
        stored = load_graph(file, stored_edges=True)
        found = reordered(stored, order, offsets, scratch_of(tmp_path, memory), tools, on_disk=True)
        write_with_bar(tmp_path / "b.h5", found)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@pytest.mark.parametrize("window, slab", [(1, 1), (4, 3), (100, 7)])
def test_rows_are_scattered_to_their_places(tmp_path, window, slab):
    rows = np.random.default_rng(3).standard_normal((40, 2)).astype(np.float16)
    place = np.random.default_rng(4).permutation(40)
    found = Scattered(rows, place, window, slab, scratch_of(tmp_path))
    expected = np.empty_like(rows)
    expected[place] = rows
    assert np.array_equal(np.concatenate([found[start : start + 9] for start in range(0, 40, 9)]), expected)


def generated(n=6000, kind="planted"):
    spec = Spec(n, 12, 4, 4, seed=4)
    return graph_data(drawn(kind, spec))


def check_clusters(order, offsets, n, count):
    assert np.array_equal(np.sort(order), np.arange(n))
    assert len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] == n and (np.diff(offsets) > 0).all()


def asked(edges, clusters, seed=0, progress=lambda count: None):
    """The request for clusters of an undirected graph."""
    return ClusterRequest(edges, None, np.arange(len(edges.indptr) - 1), clusters, seed, progress)


@pytest.mark.parametrize("kind", ["planted", "rmat"])
def test_a_graph_that_fits_has_the_clusters_of_memory(tmp_path, kind):
    data = generated(2000, kind)
    expected = dissected(asked(data.edges, 40, 5), metis.split)
    seen = []
    found = external_clusters(asked(data.edges, 40, 5, seen.append), metis.split, scratch_of(tmp_path, 1 << 30))
    assert all(np.array_equal(one, other) for one, other in zip(expected, found))
    assert sum(seen) == 40


@pytest.mark.parametrize("kind", ["planted", "rmat"])
def test_one_that_does_not_fit_is_split_on_disk_first(tmp_path, monkeypatch, kind):
    """With one thread KaMinPar repeats itself: the clusters are those of a dissection that starts with KaMinPar."""
    pytest.importorskip("kaminpar", reason="needs the extra kaminpar")
    monkeypatch.setattr("hpcgnn.cores.usable", lambda: frozenset({0}))
    monkeypatch.setattr(kaminpar, "SMALL", 0)
    data = generated(kind=kind)
    whole = whole_graph(data.edges, None).graph
    first = []

    def split(graph, weights, shares, seed):
        first.append(graph.nnz)
        return (kaminpar.split if len(first) == 1 else metis.split)(graph, weights, shares, seed)

    expected = dissected(asked(data.edges, 40, 5), split)
    memory = whole.nnz * dissection.PART_BYTES // 2
    found = external_clusters(asked(data.edges, 40, 5), metis.split, scratch_of(tmp_path, memory))
    check_clusters(*found, data.num_nodes, 40)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found))


def test_parts_of_a_star_have_no_edges(tmp_path):
    pytest.importorskip("kaminpar", reason="needs the extra kaminpar")
    indptr = np.concatenate([[0], 200 + np.arange(201)])
    star = Edges(indptr, np.concatenate([np.arange(1, 201), np.zeros(200, int)]).astype(np.int32))
    found = external_clusters(asked(star, 16), kaminpar.split, scratch_of(tmp_path, 100))
    check_clusters(*found, 201, 16)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [2, 4, 7, 15])
def test_a_dissection_that_was_killed_goes_on(tmp_path, monkeypatch, after):
    pytest.importorskip("kaminpar", reason="needs the extra kaminpar")
    data = generated()
    memory = int(data.edges.indptr[-1]) * dissection.PART_BYTES // 2
    save, saved = Scratch.save, []

    def save_some(self, name, array):
        if len(saved) >= after:
            raise Stopped
        save(self, name, array)
        saved.append(name)

    arguments = asked(data.edges, 40, 5), metis.split
    monkeypatch.setattr(Scratch, "save", save_some)
    with pytest.raises(Stopped):
        external_clusters(*arguments, scratch_of(tmp_path, memory))
    saved.clear()
    after = 10**9
    monkeypatch.setattr(Scratch, "save", save)
    side = (
        (tmp_path / "work" / "whole.side.npy").read_bytes() if (tmp_path / "work" / "whole.side.npy").exists() else None
    )
    found = external_clusters(*arguments, scratch_of(tmp_path, 1 << 40))  # more memory: a split one stays so
    check_clusters(*found, data.num_nodes, 40)
    assert side is None or (tmp_path / "work" / "whole.side.npy").read_bytes() == side


def test_a_part_that_was_clustered_stays_so_with_less_memory(tmp_path):
    data = generated(2000)
    arguments = asked(data.edges, 40, 5), metis.split
    scratch = scratch_of(tmp_path, 1 << 30)
    expected = external_clusters(*arguments, scratch)
    scratch.forget("order")  # killed before it was written
    found = external_clusters(*arguments, scratch_of(tmp_path, 1 << 10))
    assert all(np.array_equal(one, other) for one, other in zip(expected, found))


@pytest.mark.parametrize("after", [1, 3, 6])
def test_scattering_that_was_killed_is_done_again(tmp_path, monkeypatch, after):
    rows = np.random.default_rng(3).standard_normal((40, 2)).astype(np.float16)
    place = np.random.default_rng(4).permutation(40)
    replace, renamed = Path.replace, []

    def replace_some(self, target):
        if str(target).endswith((".data.npy", ".place.npy")):
            if len(renamed) >= after:
                raise Stopped
            renamed.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_some)
    with pytest.raises(Stopped):
        Scattered(rows, place, 10, 7, scratch_of(tmp_path))[0:9]
    monkeypatch.setattr(Path, "replace", replace)
    found = Scattered(rows, place, 7, 7, scratch_of(tmp_path))  # with less memory than before
    expected = np.empty_like(rows)
    expected[place] = rows
    assert np.array_equal(np.concatenate([found[start : start + 9] for start in range(0, 40, 9)]), expected)
