"""Least vertex covers of bipartite graphs, against all sets of vertices, and larger ones against each other."""

import itertools

import numpy as np
import pytest

from hpcgnn.graph.cover import MOST_LEFT, MOST_RIGHT, least_cover

SIZES = [(0, 0, 0), (3, 0, 0), (0, 3, 0), (1, 1, 1), (1, 4, 3), (4, 1, 6), (4, 4, 0), (4, 4, 5), (5, 4, 9), (5, 5, 25)]


def bipartite(num_left, num_right, num_edges, seed):
    """(indptr, indices, [(left, right)]) of edges drawn with replacement, in any order within a row."""
    rng = np.random.default_rng(seed)
    edges = [(int(rng.integers(num_left)), int(rng.integers(num_right))) for _ in range(num_edges)]
    edges.sort(key=lambda edge: edge[0])
    indptr = np.cumsum(np.bincount([u for u, _ in edges], minlength=num_left)) if edges else np.zeros(num_left, int)
    return np.append(0, indptr), np.array([v for _, v in edges], np.int32), edges


def least(num_left, num_right, edges):
    """(size of the least covers, least and most left vertices of any), by trying all sets."""
    vertices = [("left", u) for u in range(num_left)] + [("right", v) for v in range(num_right)]
    for size in range(len(vertices) + 1):
        found = [
            sum(side == "left" for side, _ in chosen)
            for chosen in itertools.combinations(vertices, size)
            if all(("left", u) in chosen or ("right", v) in chosen for u, v in edges)
        ]
        if found:
            return size, min(found), max(found)
    raise AssertionError


@pytest.mark.parametrize("num_left, num_right, num_edges", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_all_sets(num_left, num_right, num_edges, seed):
    indptr, indices, edges = bipartite(num_left, num_right, num_edges, seed)
    size, fewest, most = least(num_left, num_right, edges)
    found, left, right = least_cover(indptr, indices, num_right)
    assert found == size
    for bit, expected in ((MOST_LEFT, most), (MOST_RIGHT, fewest)):
        chosen_left, chosen_right = (left & bit) != 0, (right & bit) != 0
        assert all(chosen_left[u] or chosen_right[v] for u, v in edges)
        assert int(chosen_left.sum() + chosen_right.sum()) == size
        assert int(chosen_left.sum()) == expected


def test_large_and_within_a_longer_list():
    """A cover as large as a matching is least, and the two covers are equally large: on a graph with hubs."""
    rng = np.random.default_rng(5)
    left_of = np.sort((300 * rng.random(2000) ** 3).astype(np.int64))
    right_of = (200 * rng.random(2000) ** 3).astype(np.int32)
    indptr = np.append(0, np.cumsum(np.bincount(left_of, minlength=300)))
    found, left, right = least_cover(indptr, right_of, 200)
    for bit in (MOST_LEFT, MOST_RIGHT):
        assert int(((left & bit) != 0).sum() + ((right & bit) != 0).sum()) == found
        assert (((left & bit) != 0)[left_of] | ((right & bit) != 0)[right_of]).all()
    shifted = np.append(np.full(7, -1, np.int32), right_of)
    again = least_cover(indptr + 7, shifted, 200)
    assert again[0] == found and (again[1] == left).all() and (again[2] == right).all()
