"""Largest matchings of bipartite graphs against SciPy's, which the reference is."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from hpcgnn.kernels import match


def drawn(num_left, num_right, num_edges, rng):
    return rng.integers(num_left, size=num_edges), rng.integers(num_right, size=num_edges)


def chain(length, rng):
    """Each left vertex has two right ones, its own and the next one's: a greedy choice is wrong all along."""
    name, other = rng.permutation(length), rng.permutation(length + 1)
    return np.repeat(name, 2), np.stack([other[:-1], other[1:]], 1).ravel()


@pytest.mark.parametrize("seed", range(4))
def test_as_many_edges_as_the_largest(kernels, seed):
    rng = np.random.default_rng(seed)
    graphs = [
        (n, m, *drawn(n, m, e, rng)) for n, m, e in [(1, 1, 1), (3, 0, 0), (0, 3, 0), (9, 7, 12), (300, 250, 500)]
    ]
    for num_left, num_right, lefts, rights in [*graphs, (60, 61, *chain(60, rng)), (61, 60, *chain(60, rng)[::-1])]:
        order = np.argsort(lefts, kind="stable")
        indptr = np.append(0, np.cumsum(np.bincount(lefts, minlength=num_left)))
        indices = np.append(np.int32(-7), rights[order].astype(np.int32))  # before the slice: is not looked at
        right_of, left_of = (each.numpy() for each in match(*map(torch.from_numpy, (indptr + 1, indices)), num_right))
        edges = csr_matrix((np.ones(len(lefts)), (lefts, rights)), shape=(num_left, num_right))
        (matched,) = np.nonzero(right_of >= 0)
        assert len(matched) == (maximum_bipartite_matching(edges) >= 0).sum()
        assert all(edges[u, right_of[u]] and left_of[right_of[u]] == u for u in matched)
        assert (left_of >= 0).sum() == len(matched)
