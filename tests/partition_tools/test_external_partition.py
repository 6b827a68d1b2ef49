"""Clusters and order of graphs that stay on disk, against plain matrices and lists."""

import numpy as np
import pytest
import scipy.sparse
from partition_helpers import drawn, graph_data
from test_kaminpar import star

from partition_tools.generators.spec import Spec
from partition_tools.graph.raw import RawGraph
from partition_tools.out_of_core import sorting
from partition_tools.partitioners import kaminpar, metis, pattern
from partition_tools.partitioners.dissection import dissected
from partition_tools.partitioners.pattern import parts_of, whole_pattern
from partition_tools.partitioners.request import ClusterRequest
from partition_tools.workspace.scratch import Scratch


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(sorting, "MOST_RUN", 301)
    monkeypatch.setattr(sorting, "MOST_RANGE", 207)
    monkeypatch.setattr(pattern, "BLOCK", 150)


def odd_graph(directed, n=70, count=900):
    """Parallel edges, self loops, isolated nodes, hubs; features, labels of a kind."""
    random = np.random.default_rng(0)
    src = (random.integers(0, n - 9, count) * random.random(count)).astype(np.int64)
    dst = random.integers(0, n - 9, count)
    if not directed:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    kind, weight = (src + dst) % 3, ((src * dst) % 7).astype(np.float32)
    features = random.standard_normal((n, 3)).astype(np.float32)
    return graph_data(RawGraph(src, dst, n, features, random.integers(0, 4, n), {}, 4, weight, kind))


def plain_pattern(data):
    """The symmetric pattern of the edges as a matrix of SciPy, without self loops."""
    edges, shape = data.edges, (data.num_nodes, data.num_nodes)
    matrix = scipy.sparse.csr_matrix((np.ones(len(edges.indices)), edges.indices, edges.indptr), shape=shape)
    matrix = ((matrix + matrix.T) > 0).tolil()
    matrix.setdiag(False)
    matrix = matrix.tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


@pytest.mark.parametrize("directed", [False, True])
def test_the_pattern_is_that_of_memory(tmp_path, directed):
    data = odd_graph(directed)
    expected = plain_pattern(data)
    found = whole_pattern(data.edges, data.edges_out, Scratch(tmp_path / "work", 1 << 20))
    assert np.array_equal(found.indptr, expected.indptr) and np.array_equal(found.indices, expected.indices)
    assert np.array_equal(np.concatenate(list(found.blocks())), expected.indices)


@pytest.mark.parametrize("num_parts", [1, 3, 8])
def test_parts_are_the_submatrices(tmp_path, num_parts):
    data = odd_graph(False)
    scratch = Scratch(tmp_path / "work", 1 << 20)
    whole = whole_pattern(data.edges, None, scratch)
    side = np.random.default_rng(1).integers(0, num_parts, data.num_nodes)
    matrix = plain_pattern(data)
    parts = parts_of(whole, side, num_parts)
    for index, part in enumerate(parts):
        inside = np.flatnonzero(side == index)
        expected = matrix[inside][:, inside]
        expected.sort_indices()
        assert np.array_equal(part.nodes, inside)
        assert np.array_equal(part.indptr, expected.indptr) and np.array_equal(part.indices, expected.indices)


def check_clusters(order, offsets, n, count):
    assert np.array_equal(np.sort(order), np.arange(n))
    assert len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] == n and (np.diff(offsets) > 0).all()


def asked(edges, clusters, seed=0, progress=lambda count: None):
    """The request for clusters of an undirected graph."""
    return ClusterRequest(edges, None, np.arange(len(edges.indptr) - 1), clusters, seed, progress)


@pytest.mark.parametrize("kind", ["planted", pytest.param("rmat", marks=pytest.mark.slow)])
def test_one_that_does_not_fit_is_split_on_disk_first(tmp_path, monkeypatch, kind):
    """With one thread KaMinPar repeats itself: the clusters equal a dissection's that starts with KaMinPar."""
    pytest.importorskip("kaminpar", reason="needs the extra kaminpar")
    monkeypatch.setattr("hpcgnn.cores.usable", lambda: frozenset({0}))
    monkeypatch.setattr(kaminpar, "SMALL", 0)
    data, first, seen = graph_data(drawn(kind, Spec(6000, 12, 4, 4, seed=4))), [], []

    def split(graph, weights, shares, seed):
        first.append(graph.nnz)
        return (kaminpar.split if len(first) == 1 else metis.split)(graph, weights, shares, seed)

    expected = dissected(asked(data.edges, 40, 5, seen.append), split, Scratch(tmp_path / "roomy", 1 << 30))
    found = dissected(asked(data.edges, 40, 5), metis.split, Scratch(tmp_path / "work", first[0] * 20), kaminpar._cut)
    check_clusters(*found, data.num_nodes, 40)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found)) and sum(seen) == 40


def test_parts_of_a_star_have_no_edges(tmp_path):
    pytest.importorskip("kaminpar", reason="needs the extra kaminpar")
    found = dissected(asked(star(200, 0), 16), kaminpar.split, Scratch(tmp_path / "work", 100), kaminpar._cut)
    check_clusters(*found, 201, 16)
