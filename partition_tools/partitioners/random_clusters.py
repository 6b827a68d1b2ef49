"""Random maps of METIS clusters: balanced, but neighbours on other ranks. RandomTMA trains on these, and tests need
them."""

import numpy as np

from hpcgnn.graphfile.schema import Csr
from hpcgnn.placement.clusters import deal_clusters
from partition_tools.partitioners import metis

NAME = "random-clusters"
HELP = "METIS clusters dealt to ranks at random"
NEW_FILE = ON_DISK = False
clusters = metis.clusters


def ranks(sizes: np.ndarray, graph: Csr, num_ranks: int, seed: int) -> np.ndarray:
    """Clusters to ranks, see `hpcgnn.placement.clusters.deal_clusters`; of several weights the first
    counts, since a random deal is near balance in all.
    """
    return deal_clusters(sizes.reshape(len(sizes), -1)[:, 0], num_ranks, seed)
