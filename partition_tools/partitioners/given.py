"""An assignment of nodes to parts that another program made: each part is a cluster, and a rank."""

import numpy as np

from hpcgnn.graphfile.schema import Csr
from partition_tools.partitioners.request import ClusterRequest, Clusters


class Given:
    """A way to partition (partitioners/methods.py). name: of the map; parts: int (n,) by original id."""

    HELP = "the parts of the file that was imported"
    NEW_FILE = False
    NESTED = False

    def __init__(self, name: str, parts: np.ndarray) -> None:
        self.NAME, self._parts = name, parts

    def clusters(self, asked: ClusterRequest) -> Clusters:
        """(order, offsets): the nodes of each part, in the order of the file."""
        parts = self._parts[asked.original_id]
        sizes = np.bincount(parts, minlength=asked.num_clusters)
        return np.argsort(parts, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])

    def ranks(self, sizes: np.ndarray, graph: Csr, num_ranks: int, seed: int) -> np.ndarray:
        """Each part to its rank: int32 (K,)."""
        return np.arange(len(sizes), dtype=np.int32)
