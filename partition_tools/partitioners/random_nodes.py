"""Nodes in random order: no locality at all, the baseline that shows the worth of partitioning.

The order depends on the seed and the original ids only, not on the order of the file that it is made from.
"""

import numpy as np

from hpcgnn.graphfile.schema import Csr
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.workspace.scratch import Scratch

NAME = "random-nodes"
HELP = "nodes in random order, equal runs of them to ranks (writes a new file)"
NEW_FILE = ON_DISK = True


def clusters(asked: ClusterRequest, scratch: Scratch) -> Clusters:
    """(order, offsets): a random permutation cut into equal chunks."""
    n = len(asked.original_id)
    position = np.empty(n, np.int64)
    position[asked.original_id] = np.arange(n)
    order = position[np.random.Generator(np.random.PCG64(asked.seed)).permutation(n)]
    return order, np.arange(asked.num_clusters + 1) * n // asked.num_clusters


def ranks(sizes: np.ndarray, graph: Csr, num_ranks: int, seed: int) -> np.ndarray:
    """Consecutive clusters to each rank: int32 (K,)."""
    return (np.arange(len(sizes)) * num_ranks // len(sizes)).astype(np.int32)
