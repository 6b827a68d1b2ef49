"""Least vertex covers of a bipartite graph, which decide the messages between two ranks."""

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.graphfile.ranges import segments

# Bits of the results of `least_cover`.
MOST_LEFT, MOST_RIGHT = 1, 2


def least_cover(indptr: np.ndarray, indices: np.ndarray, num_right: int) -> tuple[int, np.ndarray, np.ndarray]:
    """The least vertex covers of a bipartite graph: (vertices of each, left uint8 (n,), right uint8 (num_right,)).

    There may be many. Bit MOST_LEFT of left and right marks the least cover with the most left vertices, bit MOST_RIGHT
    the one with the most right vertices. indptr (n + 1,) is of the left vertices; it may start above 0, as a slice of a
    longer one does. indices (E,) are right vertices, not checked; edges may be repeated.

    A least cover has as many vertices as a largest matching has edges, and alternating paths from the free vertices of
    one side find it (König 1931). Every largest matching gives the same two covers.
    """
    num_left = len(indptr) - 1
    mates = kernels.match(torch.from_numpy(indptr), torch.from_numpy(indices), num_right)
    right_of, left_of = mates[0].numpy(), mates[1].numpy()
    columns = indices[indptr[0] : indptr[-1]]
    back = np.append(0, np.cumsum(np.bincount(columns, minlength=num_right)))
    lefts = np.repeat(np.arange(num_left), np.diff(indptr))[np.argsort(columns, kind="stable")]
    (matched,) = np.nonzero(right_of >= 0)
    mates_of_matched = right_of[matched]
    from_left = _reached(indptr, indices, np.flatnonzero(right_of < 0), left_of)[mates_of_matched]
    from_right = _reached(back, lefts, np.flatnonzero(left_of < 0), right_of)[matched]
    left, right = np.zeros(num_left, np.uint8), np.zeros(num_right, np.uint8)
    left[matched] = np.where(from_left, 0, MOST_LEFT) + np.where(from_right, MOST_RIGHT, 0)
    right[mates_of_matched] = np.where(from_left, MOST_LEFT, 0) + np.where(from_right, 0, MOST_RIGHT)
    return len(matched), left, right


def _reached(indptr: np.ndarray, indices: np.ndarray, starts: np.ndarray, mate: np.ndarray) -> np.ndarray:
    """bool: vertices of the other side that alternating paths from `starts` reach. mate: of the other side, or -1."""
    reached, free = np.zeros(len(mate), bool), starts
    while len(free):
        others = np.unique(indices[segments(indptr[free], indptr[free + 1] - indptr[free])])
        others = others[~reached[others]]
        reached[others] = True
        free = mate[others]
        free = free[free >= 0]
    return reached
