"""METIS clusters by nested dissection, and maps of clusters to ranks: few halo rows, for graphs that fit memory."""

import numpy as np
import scipy

from hpcgnn.placement.clusters import map_clusters
from partition_tools.partitioners.dissection import dissected
from partition_tools.partitioners.metis_process import metis_apart
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.workspace.scratch import Scratch

NAME = "metis"
HELP = "few edges between ranks; for graphs that fit memory"
NEW_FILE = ON_DISK = False
ranks = map_clusters


def clusters(asked: ClusterRequest, scratch: Scratch) -> Clusters:
    """(order int64 (n,), offsets int64 (K + 1,)), see `dissection.dissected`. Memory: `choice.forecast`."""
    return dissected(asked, split, scratch)


def split(graph: "scipy.sparse.csr_matrix", weights: np.ndarray, shares: np.ndarray, seed: int) -> np.ndarray:
    """METIS as a `dissection.Split`."""
    alike = not len(graph.data) or graph.data.min() == graph.data.max()
    edges = None if alike else graph.data
    return metis_apart(graph.indptr, graph.indices, edges, seed, weights, shares)
