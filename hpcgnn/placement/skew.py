"""Whether a graph has hubs: a few nodes with a large part of its edges.

On such a graph nodes alone say little of the time that a rank takes, and few parts have few edges between them.
"""

from collections.abc import Iterable

import numpy as np

HUB, SKEWED = 16, 0.2  # times the mean degree; share of the edges


def is_skewed(degrees: np.ndarray) -> bool:
    """Whether a large part of the edges is at nodes of many times the mean degree. degrees: int (n,)."""
    return skew(degrees) > SKEWED


def skew(degrees: np.ndarray) -> float:
    """The share of the edges that end at nodes with more than HUB times the mean degree. degrees: int (n,)."""
    return skew_of_parts([degrees], len(degrees), int(degrees.sum(dtype=np.int64)))


def skew_of_parts(parts: Iterable[np.ndarray], num_nodes: int, num_edges: int) -> float:
    """`skew` of degrees that come some at a time. num_nodes, num_edges: of all parts together."""
    if not num_edges:
        return 0.0
    most = HUB * num_edges / num_nodes
    return sum(int(degrees[degrees > most].sum(dtype=np.int64)) for degrees in parts) / num_edges
