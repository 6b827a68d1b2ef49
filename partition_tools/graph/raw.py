"""The meeting point of readers, generators and the canonical form: a graph as its source had it, unchecked.

A reader only has to find the arrays. Sorting, symmetry, checks, dtypes and identity are the business of `canonical`, so
a new format is one short file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.field_series import FieldSeries
from hpcgnn.graphfile.schema import Csr, RowReader


class DataError(GraphError):
    """A mistake in the data of one node or edge, by its number. `RawGraph.named` gives it the source's names.

    Attributes:
        text: the mistake, after 'node 3'.
        of: the name of a table in `RawGraph.tables`, or ''.
        column: its column; None if all or the only one.
        item: 'node' or 'edge'.
    """

    def __init__(self, number: int, text: str, of: str = "", column: int | None = None, item: str = "node") -> None:
        super().__init__(f"{item} {number} {text}")
        self.number, self.text, self.of, self.column, self.item = number, text, of, column, item


def check_finite(
    rows: np.ndarray, numbers: Sequence[int] | np.ndarray, form: str = "", of: str = "features", item: str = "node"
) -> None:
    """Raise DataError for the first NaN or infinity in rows (m, C). numbers: of their nodes or edges."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = divmod(int(np.argmin(finite)), rows.shape[1])
        text = f"has a feature that is NaN or infinite{form}; mend or remove it first"
        raise DataError(int(numbers[row]), text, of, column if rows.shape[1] > 1 else None, item)


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
        position: float (n, D), nodes in space, or None.
        snapshots: fields at many times, or None.
        tables: {"features" | "labels" | "splits" | "node types": (file, names of its columns or [])}, where there are.
    """

    src: RowReader
    dst: RowReader
    num_nodes: int
    features: RowReader | Csr | None = None
    labels: np.ndarray | None = None
    split: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    num_classes: int | None = None
    weight: RowReader | None = None
    type: RowReader | None = None
    source: str = ""
    identity: bytes | None = None
    seed: int = 0
    node_type: np.ndarray | None = None
    type_names: dict[str, list[str]] = field(default_factory=dict)
    ids: np.ndarray | None = None
    edge_features: RowReader | None = None
    parts: np.ndarray | None = None
    links: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    position: RowReader | None = None
    snapshots: FieldSeries | None = None
    tables: Mapping[str, tuple[str, list[str]]] = field(default_factory=dict)

    def named(self, error: DataError) -> GraphError:
        """The error with the source's id, table and column."""

        def own(node: int) -> str:
            return str(node if self.ids is None or not 0 <= node < len(self.ids) else self.ids[node])

        table, names = self.tables.get(error.of, ("", []))
        where, column = [table] if table else [], 0 if len(names) == 1 else error.column
        if column is not None:
            where.append(f"column {names[column]}" if names else f"column {column} of the {error.of} (from 0)")
        who = f"{error.item} {error.number}"
        if error.item == "node":
            who = f"node {own(error.number)}"
        elif error.number < self.src.shape[0]:
            ends = (own(int(np.asarray(end[error.number : error.number + 1])[0])) for end in (self.src, self.dst))
            who += f", from {' to '.join(ends)},"
        return GraphError(f"{', '.join(where)}: {who} {error.text}" if where else f"{who} {error.text}")

    def drop_edges(self) -> None:
        """Let the edges go: their memory is wanted before the graph is done with."""
        self.src = self.dst = np.zeros(0, np.int64)
        self.weight = self.type = None
