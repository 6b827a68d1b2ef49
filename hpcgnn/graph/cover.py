"""Least vertex covers of a bipartite graph, which decide the messages between two ranks."""

from typing import Any

import numpy as np

# Bits of the results of `least_cover`.
MOST_LEFT, MOST_RIGHT = 1, 2


def least_cover(indptr: np.ndarray, indices: np.ndarray, num_right: int) -> tuple[int, np.ndarray, np.ndarray]:
    """The least vertex covers of a bipartite graph: (vertices of each, left uint8 (n,), right uint8 (num_right,)).

    There may be many. Bit MOST_LEFT of left and right marks the least cover with the most left vertices, bit MOST_RIGHT
    the one with the most right vertices. indptr (n + 1,) is of the left vertices; it may start above 0, as a slice of a
    longer one does. indices (E,) are right vertices, not checked; edges may be repeated.

    A least cover has as many vertices as a largest matching has edges, and alternating paths from the free vertices of
    one side find it (König 1931). Hopcroft and Karp's algorithm (SIAM J. Comput. 1973) finds the matching in time
    O(E √V). Every largest matching gives the same two covers.
    """
    # Loaded here: a job whose ranks send rows alone needs no SciPy.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    columns = indices[indptr[0] : indptr[-1]]
    shape = len(indptr) - 1, num_right
    edges = csr_matrix((np.ones(len(columns), np.int8), columns, indptr - indptr[0]), shape=shape, copy=True)
    edges.sum_duplicates()  # in its own copy
    right_of = maximum_bipartite_matching(edges, perm_type="column")
    (matched,) = np.nonzero(right_of >= 0)
    mates = right_of[matched]
    left_of = np.full(num_right, -1, right_of.dtype)
    left_of[mates] = matched
    from_left = _reached(edges, np.flatnonzero(right_of < 0), left_of)[mates]
    from_right = _reached(edges.T.tocsr(), np.flatnonzero(left_of < 0), right_of)[matched]
    left, right = np.zeros(shape[0], np.uint8), np.zeros(num_right, np.uint8)
    left[matched] = np.where(from_left, 0, MOST_LEFT) + np.where(from_right, MOST_RIGHT, 0)
    right[mates] = np.where(from_left, MOST_LEFT, 0) + np.where(from_right, 0, MOST_RIGHT)
    return len(matched), left, right


def _reached(edges: Any, starts: np.ndarray, mate: np.ndarray) -> np.ndarray:
    """bool: vertices of the other side that alternating paths from `starts` reach. edges: csr_matrix. mate: of the
    other side, or -1.
    """
    found, free = np.zeros(edges.shape[1], bool), starts
    while len(free):
        others = np.unique(edges[free].indices)
        others = others[~found[others]]
        found[others] = True
        free = mate[others]
        free = free[free >= 0]
    return found
