"""Maps of clusters to ranks: onto, balanced where sizes allow, reproducible, and better than chance."""

import numpy as np
import pytest
import scipy.sparse

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.storage import Csr
from hpcgnn.placement.clusters import deal_clusters, imbalance, map_clusters, metis


def ring(count, seed=0):
    """A weighted ring of clusters with some chords, its nodes shuffled; sizes around 100."""
    random = np.random.default_rng(seed)
    place = random.permutation(count)
    one, two = np.arange(count), (np.arange(count) + 1) % count
    weight = random.integers(50, 100, count)
    chords = random.integers(0, count, (2, count))
    one, two = np.concatenate([one, chords[0]]), np.concatenate([two, chords[1]])
    weight = np.concatenate([weight, np.ones(count, np.int64)])
    matrix = scipy.sparse.csr_matrix((weight, (place[one], place[two])), shape=(count, count))
    matrix = (matrix + matrix.T).tocsr()
    matrix.sort_indices()
    return random.integers(80, 120, count), Csr(matrix.indptr, matrix.indices, matrix.data, count)


def cut(graph, parts):
    row = np.repeat(np.arange(len(parts)), np.diff(graph.indptr))
    return graph.data[parts[row] != parts[graph.indices]].sum()


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 8, 13])
def test_balanced_onto_and_better_than_chance(num_ranks):
    sizes, graph = ring(256)
    parts = map_clusters(sizes, graph, num_ranks, seed=3)
    assert parts.dtype == np.int32 and sorted(set(parts)) == list(range(num_ranks))
    assert imbalance(np.bincount(parts, sizes)) <= 1.035
    assert num_ranks == 1 or cut(graph, parts) < 0.4 * cut(graph, deal_clusters(sizes, num_ranks, 3))
    np.testing.assert_array_equal(parts, map_clusters(sizes, graph, num_ranks, seed=3))


def test_every_rank_has_a_cluster():
    sizes, graph = ring(9)
    sizes[0] = 10_000
    for num_ranks in range(1, 10):
        for parts in (map_clusters(sizes, graph, num_ranks), deal_clusters(sizes, num_ranks)):
            assert sorted(set(parts)) == list(range(num_ranks))


def test_deal_is_random_and_balanced():
    sizes, _ = ring(256)
    parts = [deal_clusters(sizes, 4, seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(parts[0], parts[1])
    assert (parts[0] != parts[2]).mean() > 0.5
    assert imbalance(np.bincount(parts[0], sizes)) < 1.02


def test_without_pymetis(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    with pytest.raises(GraphError, match="pip install pymetis"):
        metis([0, 1, 2], [1, 0], None, 2)
