"""The meeting point of readers, generators and the canonical form: a graph as its source had it, unchecked.

A reader only has to find the arrays. Sorting, symmetry, checks, dtypes and identity are the business of `canonical`, so
a new format is one short file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hpcgnn.graphfile.schema import Csr, Rows


@dataclass
class RawGraph:
    """A graph as its source has it, not yet checked.

    Attributes:
        src, dst: int (E,); an edge goes from src[i] to dst[i]. They, `weight` and `type` may be anything that slices
            like a vector: mapped files, or numbers computed when they are read.
        weight: (E,) or None.
        type: int (E,) or None.
        features: (n, F) array-like, `hpcgnn.graphfile.storage.Csr`, or None.
        labels: (n,), (n, 1) or (n, C), any number type, or None.
        split: {"train" | "val" | "test": bool (n,) or int node ids}.
        num_classes: None to count.
        identity: bytes hashed in place of the features for the graph's name (generators: their parameters); None: the
            features are read.
        node_type: (n,) or None.
        type_names: {"nodes": names, "edges": names, "classes": names}, in the order of the numbers, each optional.
        ids: (n,) of integers or of text, the source's names of the nodes, or None.
        edge_features: numbers (E,) or (E, F_e), array-like, or None.
        parts: int (n,), the part of each node where the source is partitioned, or None; stored as a map.
        links: {"val" | "test": {name of `links.NAMES`: array}}, held-out edges, none of them among the edges.
    """

    src: Rows
    dst: Rows
    num_nodes: int
    features: Rows | Csr | None = None
    labels: np.ndarray | None = None
    split: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    num_classes: int | None = None
    weight: Rows | None = None
    type: Rows | None = None
    source: str = ""
    identity: bytes | None = None
    seed: int = 0
    node_type: np.ndarray | None = None
    type_names: dict[str, list[str]] = field(default_factory=dict)
    ids: np.ndarray | None = None
    edge_features: Rows | None = None
    parts: np.ndarray | None = None
    links: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    def drop_edges(self) -> None:
        """Let the edges go: their memory is wanted before the graph is done with."""
        self.src = self.dst = np.zeros(0, np.int64)
        self.weight = self.type = None
