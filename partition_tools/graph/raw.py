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
    """src, dst: int (E,), an edge goes from src[i] to dst[i]. weight: (E,) or None; type: int (E,) or None. All four
    may be anything that slices like a vector: mapped files, or numbers that are worked out when they are asked for.

    features: (n, F) array-like, `hpcgnn.graphfile.storage.Csr`, or None. labels: (n,), (n, 1) or (n, C), any number
    type, or None. split: {"train" | "val" | "test": bool (n,) or int node ids}. num_classes: None to count. identity:
    bytes that stand for the features when the graph is named (generators: their parameters), None to read the features
    for that. node_type: (n,) or None. type_names: {"nodes": names, "edges": names, "classes": names} in the order of
    the numbers of types and classes, each where there are any. ids: (n,) of integers or of text, what the source calls
    the nodes, or None. edge_features: numbers (E,) or (E, F_e), array-like, or None. links: {"val" | "test": {name of
    `links.NAMES`: array}}, held-out edges, which are none of these.
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
    links: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    def drop_edges(self) -> None:
        """Let the edges go: their memory is wanted before the graph is done with."""
        self.src = self.dst = np.zeros(0, np.int64)
        self.weight = self.type = None
