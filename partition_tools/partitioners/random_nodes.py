"""Nodes in random order: no locality at all, the baseline that shows what partitioning is worth.

The order depends on the seed and the original ids only, not on the order of the file that it is made from.
"""

from collections.abc import Callable

import numpy as np

from hpcgnn.graphfile.schema import Csr, Edges

NAME = "random-nodes"
HELP = "nodes in random order, equal runs of them to ranks (writes a new file)"
NEW_FILE = True
NESTED = False


def clusters(
    edges: Edges,
    edges_out: Edges | None,
    original_id: np.ndarray,
    num_clusters: int,
    seed: int,
    progress: Callable[[int], object] = lambda count: None,
) -> tuple[np.ndarray, np.ndarray]:
    """(order, offsets): a random permutation cut into equal chunks."""
    n = len(original_id)
    position = np.empty(n, np.int64)
    position[original_id] = np.arange(n)
    order = position[np.random.Generator(np.random.PCG64(seed)).permutation(n)]
    return order, np.arange(num_clusters + 1) * n // num_clusters


def ranks(sizes: np.ndarray, graph: Csr, num_ranks: int, seed: int) -> np.ndarray:
    """Consecutive clusters to each rank: int32 (K,)."""
    return (np.arange(len(sizes)) * num_ranks // len(sizes)).astype(np.int32)
