"""An assignment of nodes to parts that another program made: each part is a cluster, and a rank."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.schema import Csr
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.readers.tables.tables import map_npy
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.settings import key

NAME = "file"


@dataclass(frozen=True, eq=False)
class Given:
    """A way to partition (partitioners/methods.py). parts: int (n,) by original id, in place of those in the file."""

    path: Path | None = key("file.path", None, "the part of each node, integers from 0 in a .npy file", Path)
    parts: np.ndarray | None = None
    NAME: str = NAME
    HELP = "parts from --set file.path=PARTS.npy: an integer for each node of the imported graph"
    NEW_FILE = ON_DISK = False

    def of_nodes(self) -> np.ndarray:
        """int (n,) by original id. Raises ConfigError, GraphError."""
        if self.parts is None and self.path is None:
            raise ConfigError("--method file needs --set file.path=PARTS.npy")
        parts = map_npy(self.path) if self.parts is None and self.path is not None else self.parts
        if parts is None or parts.ndim != 1 or parts.dtype.kind not in "iu" or not len(parts) or parts.min() < 0:
            raise GraphError(f"{self.path}: expected a vector of the numbers of parts, from 0")
        return parts

    @property
    def count(self) -> int:
        """The number of parts."""
        return int(self.of_nodes().max()) + 1

    def clusters(self, asked: ClusterRequest, scratch: Scratch) -> Clusters:
        """(order, offsets): the nodes of each part, in the order of the file."""
        parts = self.of_nodes()
        if len(parts) != len(asked.original_id):
            raise GraphError(f"there are {len(parts)} parts of nodes for {len(asked.original_id)} nodes")
        parts = parts[asked.original_id]
        sizes = np.bincount(parts, minlength=asked.num_clusters)
        return np.argsort(parts, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])

    def ranks(self, sizes: np.ndarray, graph: Csr, num_ranks: int, seed: int) -> np.ndarray:
        """Each part to its rank: int32 (K,)."""
        return np.arange(len(sizes), dtype=np.int32)
