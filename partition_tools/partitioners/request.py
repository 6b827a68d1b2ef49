"""The request to a method of partitioning."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hpcgnn.graphfile.schema import Edges

Clusters = tuple[np.ndarray, np.ndarray]
"""(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of exactly K clusters, none empty."""


@dataclass(frozen=True)
class ClusterRequest:
    """edges, edges_out: as in `GraphData`. original_id: int64 (n,). progress: called with the number of clusters just
    finished.
    """

    edges: Edges
    edges_out: Edges | None
    original_id: np.ndarray
    num_clusters: int
    seed: int = 0
    progress: Callable[[int], object] = lambda count: None
