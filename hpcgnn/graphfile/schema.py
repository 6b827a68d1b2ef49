"""The contents of a graph file, as plain arrays and numbers, and their layout in the file.

`storage` reads, writes and checks files by this layout. Code that makes or changes a graph depends on the contents
alone.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np

from hpcgnn.graphfile import field_series
from hpcgnn.graphfile.field_series import TIME, FieldSeries
from hpcgnn.graphfile.label_files import CLASSIFICATION, LABELS, MULTILABEL, REGRESSION, task_of
from hpcgnn.graphfile.narrow import SCALES

SPLITS = {"train": 1, "val": 2, "test": 3}
#: The kinds of negatives of held-out edges (see given_links.py).
KINDS_OF_NEGATIVES = ("none", "shared", "each")


class RowReader(Protocol):
    """An array, or anything that slices like one: rows that are read, made or put in order when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


@dataclass
class Csr:
    """Rows of a sparse matrix. indptr: int64 (rows + 1,), indices: int (nnz,), data: float32 (nnz,) or None for
    ones.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray | None = None
    num_columns: int = 0


@dataclass
class Words:
    """Texts one after another. offsets: int64 (n + 1,), where each begins; text: uint8, their UTF-8."""

    offsets: np.ndarray
    text: RowReader


@dataclass(frozen=True)
class GivenLinks:
    """Held-out edges of one split, by original node ids, with their negatives if given.

    Attributes:
        edges: int (m, 2), source and target of each.
        negatives: int (k, 2), pairs for comparison with all of them, or None.
        negative_targets: int (m, N), nodes in place of each edge's target, or None. At most one of the two is given.
        counts: {name of `given_links.COUNTS`: number of these edges or negatives}; of older files some are missing.
    """

    edges: RowReader
    negatives: RowReader | None = None
    negative_targets: RowReader | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_negatives(self) -> int:
        """The number of pairs without an edge, of all edges together."""
        if self.negatives is not None:
            return self.negatives.shape[0]
        return 0 if self.negative_targets is None else self.negative_targets.shape[0] * self.negative_targets.shape[1]


@dataclass
class Edges:
    """One direction of the edges, grouped by a node and sorted by the other end within each group.

    Attributes:
        indptr: int64 (n + 1,).
        indices: int (E,).
        weight: float32 (E,) or None.
        type: int32 (E,) or None.
        row: int64 (E,), each edge's row of the edge features, while edges are put in order; else None.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None = None
    type: np.ndarray | None = None
    row: np.ndarray | None = None


@dataclass
class GraphData:
    """The contents of a graph file, in the order of the file. Arrays may be any objects that slice like an array.

    Attributes:
        edges: in-edges, grouped by destination (indices are sources).
        edges_out: the same edges grouped by source, for directed graphs. None for a graph that is its own transpose in
            pattern, multiplicity, weights and types.
        features: (n, F) float32, float16 or int8, a `Csr` of n rows, or None.
        labels: int (n,) with -1 for none, uint8 (n, C) for multi-label tasks, or float (n,) or (n, T) with NaN for none
            for regression.
        split: uint8 (n,), 0 for none or a value of `SPLITS`.
        cluster_graph: edge counts between clusters.
        uuid: names the graph, not the order of its nodes: reordering and added partitionings keep it.
        node_type: int (n,) from 0, or None.
        type_names: {"nodes": [...], "edges": [...], "classes": [...]}, the names of types and of classes in the order
            of their numbers; each is optional. Several labels or targets have the names of their columns as classes.
        ids: the user's ids in the *original* order (see own_ids.py): int (n,), or Words of n texts; None if they are
            the nodes' numbers.
        edge_features: float32 (E, F_e), a row for each of `edges`, or None. An edge and its reverse may have different
            ones in any graph.
        num_feature_parts: number of groups of feature columns: the hops of `hpcgnn propagate`.
        num_label_parts: how many of them, the last ones, are hops of labels, with a column for each class. The others
            are equally wide.
        links: {"val", "test": held-out edges outside of `edges`}, if they come with the graph. All splits have
            negatives of one kind (see given_links.py).
        bfloat16: whether the features, float32 here, are stored in bfloat16.
        feature_scales: the factors of features in int8 (see narrow.py), or None.
        position: float32 or float64 (n, D), the nodes of a mesh in space, or None.
        volume: float (n,), weights of nodes in the loss of fields, or None.
        given: uint8 (n,), 1 for nodes whose fields are given and not judged, or None.
        snapshots: fields at many times, or None.
    """

    edges: Edges
    edges_out: Edges | None
    features: RowReader | Csr | None
    labels: np.ndarray
    split: np.ndarray
    original_id: np.ndarray
    cluster_offsets: np.ndarray
    num_classes: int
    uuid: str
    cluster_graph: Csr | None = None
    source: str = ""
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    num_self_loops: int = 0
    node_type: np.ndarray | None = None
    type_names: dict[str, list[str]] = field(default_factory=dict)
    ids: RowReader | Words | None = None
    edge_features: RowReader | None = None
    num_feature_parts: int = 1
    num_label_parts: int = 0
    links: Mapping[str, GivenLinks] = field(default_factory=dict)
    bfloat16: bool = False
    feature_scales: np.ndarray | None = None
    position: RowReader | None = None
    volume: RowReader | None = None
    given: RowReader | None = None
    snapshots: FieldSeries | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.edges.indptr) - 1

    @property
    def task(self) -> str:
        """Which task the labels are for: a name of `LABELS`."""
        return task_of(self.labels)

    @property
    def negatives(self) -> str:
        """Return the kind of negatives of the given held-out edges, '' if there are none."""
        kinds = [
            KINDS_OF_NEGATIVES[1 if each.negatives is not None else 2 if each.negative_targets is not None else 0]
            for each in self.links.values()
        ]
        return kinds[0] if kinds else ""

    @property
    def num_edge_types(self) -> int:
        return count_types(self.edges.type, self.type_names.get("edges"))

    @property
    def num_node_types(self) -> int:
        return count_types(self.node_type, self.type_names.get("nodes"))

    @property
    def version(self) -> int:
        """The oldest version of the format that has all that the graph has."""
        has = self.task == REGRESSION, self.edge_features is not None, self.num_label_parts > 0
        of_fields = any(each is not None for each in (self.position, self.volume, self.given, self.snapshots))
        needed = zip((3, 4, 5, 6, 7), (*has, self.feature_scales is not None, of_fields), strict=True)
        return max((version for version, present in needed if present), default=2)

    @property
    def meta(self) -> "GraphMeta":
        """What a file says of this graph."""
        alike = {name: getattr(self, name, None) for name in GraphMeta.__annotations__}
        features, edges = self.features, self.edges
        width = 0 if features is None else features.num_columns if isinstance(features, Csr) else features.shape[1]
        different = {
            "num_edges": int(edges.indptr[-1]),
            "num_clusters": len(self.cluster_offsets) - 1,
            "num_features": width,
            "undirected": self.edges_out is None,
            "sparse_features": isinstance(features, Csr),
            "weighted": edges.weight is not None,
            "typed": edges.type is not None,
            "num_edge_features": 0 if self.edge_features is None else self.edge_features.shape[1],
            "num_dimensions": 0 if self.position is None else self.position.shape[1],
            "snapshots": None if self.snapshots is None else self.snapshots.columns,
        }
        return GraphMeta(**{name: value for name, value in alike.items() if value is not None} | different)


def count_types(types: np.ndarray | None, names: Sequence[str] | None = None) -> int:
    """The number of types: of the names, where there are any (the last ones may have no member), else the largest + 1.

    types: int array or None for none, which counts as 0.
    """
    return 0 if types is None else max(int(types.max(initial=-1)) + 1, len(names or ()))


@dataclass(frozen=True)
class GraphMeta:
    """The root attributes of a graph file.

    Attributes:
        num_edges: number of directed edges, with self loops and duplicates.
        task: a name of `LABELS`.
        num_classes: number of a model's outputs: classes, 0/1 labels, or targets.
        num_edge_types, num_node_types: numbers of types in the whole graph, 0 without types.
        num_edge_features: columns of the edge features, 0 without any.
        type_names, num_feature_parts, num_label_parts, negatives: see `GraphData`.
        feature_type: type of the dense features' numbers in the file (`GraphFile.number_type`); not an attribute.
        num_dimensions: columns of the nodes' positions, 0 without any.
        snapshots: {field: its columns}, None without fields.
    """

    num_nodes: int
    num_edges: int
    num_clusters: int
    num_classes: int
    num_features: int
    num_self_loops: int
    undirected: bool
    task: str
    sparse_features: bool
    weighted: bool
    typed: bool
    uuid: str
    source: str
    seed: int
    versions: dict[str, str]
    num_edge_types: int
    num_node_types: int
    type_names: dict[str, list[str]]
    num_edge_features: int = 0
    num_feature_parts: int = 1
    num_label_parts: int = 0
    negatives: str = ""
    feature_type: str = "float32"
    num_dimensions: int = 0
    snapshots: dict[str, int] | None = None

    @property
    def part_widths(self) -> tuple[int, ...]:
        """Columns of each group of the features."""
        labels = self.num_label_parts
        each = (self.num_features - labels * self.num_classes) // (self.num_feature_parts - labels)
        return (each,) * (self.num_feature_parts - labels) + (self.num_classes,) * labels

    @property
    def attributes(self) -> dict[str, Any]:
        """The root attributes of a file, without its format and version."""
        found = {
            field.name: json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default and field.name != "feature_type"
        }
        task = found.pop("task")  # version 2 has no other than these two
        return {**found, "multi_label": task == MULTILABEL, **({"task": task} if task == REGRESSION else {})}


def meta_of(attributes: Mapping[str, Any], feature_type: str) -> GraphMeta:
    """Return the GraphMeta of stored root attributes. Raises KeyError, ValueError or TypeError if some are missing or
    invalid.
    """
    if "task" not in attributes:  # of version 2
        attributes = {**attributes, "task": MULTILABEL if bool(attributes["multi_label"]) else CLASSIFICATION}
    found = {**attributes, "feature_type": feature_type}
    kinds: dict[Any, Callable[[Any], Any]] = {int: int, str: str, bool: bool}
    types = {name: kind for name, kind in GraphMeta.__annotations__.items() if name in found}
    meta = GraphMeta(**{name: kinds.get(kind, json.loads)(found[name]) for name, kind in types.items()})
    for name, allowed in (("task", LABELS), ("negatives", ("", *KINDS_OF_NEGATIVES))):
        if getattr(meta, name) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(filter(None, allowed))}, got {getattr(meta, name)!r}")
    if meta.snapshots is not None and (fault := field_series.fault_of_columns(meta.snapshots)):
        raise ValueError(fault)
    names = meta.type_names
    if not isinstance(names, dict) or not all(isinstance(each, list) for each in names.values()):
        raise ValueError(f"type_names must be a JSON object of lists, got {names!r}")
    parts, labels = meta.num_feature_parts, meta.num_label_parts
    if not 0 <= labels < parts or min(meta.part_widths) < 0 or sum(meta.part_widths) != meta.num_features:
        raise ValueError(
            f"num_feature_parts is {parts}, expected a divisor of the {meta.num_features} columns of features (without "
            f"{labels} hops of {meta.num_classes} classes)"
        )
    return meta


class Stored(NamedTuple):
    """A dataset of a graph file.

    Attributes:
        name: in the file.
        source: in `GraphData`, attribute after attribute; '' for a field, which is written time by time.
        shape: the name of a dataset stands for its length.
        kinds: of numpy types.
        dtype: in which it is written; None: as it is.
        by_cluster: whether ranks read the runs of their clusters.
        optional: whether a file may be without it.
    """

    name: str
    source: str
    shape: tuple[int | str, ...]
    kinds: str
    dtype: type | None = None
    by_cluster: bool = True
    optional: bool = False


WHOLE, REAL, NUMBERS = "iu", "f", "fi"
#: The users' ids: numbers, or texts one after another and where each begins.
ID_NUMBERS, ID_OFFSETS, ID_TEXT = "original/id", "original/id_offsets", "original/id_text"


def layout(meta: GraphMeta) -> list[Stored]:
    """All datasets that a graph file of these facts has or may have, but for held-out edges and maps."""
    nodes, edges, width, csr = meta.num_nodes, meta.num_edges, meta.num_features, "nodes/features_csr"
    sides = {"": "edges"} if meta.undirected else {"": "edges", "_out": "edges_out"}
    found = []
    for suffix, side in sides.items():
        found += [
            Stored(f"topology{suffix}/indptr", f"{side}.indptr", (nodes + 1,), WHOLE, np.int64),
            Stored(f"topology{suffix}/indices", f"{side}.indices", (edges,), WHOLE),
        ]
        if meta.weighted:
            found.append(Stored(f"edges{suffix}/weight", f"{side}.weight", (edges,), REAL))
        if meta.typed:
            found.append(Stored(f"edges{suffix}/type", f"{side}.type", (edges,), WHOLE))
    if meta.num_edge_features:
        found.append(Stored("edges/features", "edge_features", (edges, meta.num_edge_features), REAL))
    if meta.sparse_features:
        found += [
            Stored(f"{csr}/indptr", "features.indptr", (nodes + 1,), WHOLE),
            Stored(f"{csr}/indices", "features.indices", (f"{csr}/indices",), WHOLE),
            Stored(f"{csr}/data", "features.data", (f"{csr}/indices",), REAL),
        ]
    else:
        found += [
            Stored("nodes/features", "features", (nodes, width), NUMBERS, optional=width == 0),
            Stored(SCALES, "feature_scales", (width,), REAL, by_cluster=False, optional=True),
        ]
    labels = LABELS[meta.task]
    found += [
        Stored("nodes/labels", "labels", labels.shape(nodes, meta.num_classes), labels.storage),
        Stored("nodes/split", "split", (nodes,), WHOLE),
        Stored("nodes/original_id", "original_id", (nodes,), WHOLE),
    ]
    if meta.num_node_types:
        found.append(Stored("nodes/type", "node_type", (nodes,), WHOLE, np.int32))
    if meta.num_dimensions:
        found.append(Stored(field_series.POSITION, "position", (nodes, meta.num_dimensions), REAL))
    found += [
        Stored(field_series.VOLUME, "volume", (nodes,), REAL, optional=True),
        Stored(field_series.GIVEN, "given", (nodes,), WHOLE, optional=True),
    ]
    if meta.snapshots is not None:
        found += [
            Stored(TIME, "snapshots.time", (TIME,), REAL, np.float64, by_cluster=False),
            Stored(field_series.NUMBER, "snapshots.number", (TIME,), WHOLE, np.int32, by_cluster=False),
            Stored(field_series.SPLIT, "snapshots.split", (TIME,), WHOLE, np.uint8, by_cluster=False),
        ]
        columns = meta.snapshots.items()
        found += [Stored(field_series.name_of_field(name), "", (TIME, nodes, width), REAL) for name, width in columns]
    return [
        *found,
        Stored(ID_NUMBERS, "ids", (nodes,), WHOLE, by_cluster=False, optional=True),
        Stored(ID_OFFSETS, "ids.offsets", (nodes + 1,), WHOLE, np.int64, by_cluster=False, optional=True),
        Stored(ID_TEXT, "ids.text", (ID_TEXT,), WHOLE, by_cluster=False, optional=True),
        Stored("clusters/offsets", "cluster_offsets", (meta.num_clusters + 1,), WHOLE, np.int64, by_cluster=False),
    ]
