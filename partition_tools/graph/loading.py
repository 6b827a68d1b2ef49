"""A graph file back as `GraphData`: edges and small arrays in memory, dense features left in the file."""

import shlex
from pathlib import Path
from typing import cast

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.field_series import GIVEN, POSITION, VOLUME, FieldSeries
from hpcgnn.graphfile.given_links import EDGES, HELD, NEGATIVES, TARGETS, name_of, stored_counts
from hpcgnn.graphfile.narrow import BFLOAT16, read_scales
from hpcgnn.graphfile.own_ids import kind_of_ids
from hpcgnn.graphfile.schema import ID_NUMBERS, ID_OFFSETS, ID_TEXT, GivenLinks, RowReader, Words
from hpcgnn.graphfile.storage import Csr, Edges, GraphData, GraphFile
from partition_tools.graph.counts import blocks
from partition_tools.graph.fields import load_series

PIECE = 1 << 24


class RowsOnDisk:
    """A dataset of an open `GraphFile` as an array-like that reads when it is sliced."""

    def __init__(self, file: GraphFile, name: str) -> None:
        self.file, self.name = file, name
        self.shape = file.shape(name)
        self.dtype = file.read(name, [(0, 0)]).dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        return self.file.read(self.name, [(start, max(start, stop))])


def load_edges(file: GraphFile, suffix: str = "", stored: bool = False) -> Edges:
    """`Edges` of /topology (or, with suffix "_out", /topology_out) and their weights and types. stored: leave all but
    the row pointers in the file, as `RowsOnDisk`.
    """
    meta = file.meta

    def read(name: str) -> np.ndarray:
        return cast(np.ndarray, RowsOnDisk(file, name)) if stored else file.read(name)

    return Edges(
        file.read(f"topology{suffix}/indptr"),
        read(f"topology{suffix}/indices"),
        read(f"edges{suffix}/weight") if meta.weighted else None,
        read(f"edges{suffix}/type") if meta.typed else None,
    )


def load_graph(file: GraphFile, stored_edges: bool = False) -> GraphData:
    """`GraphData` of an open `GraphFile`. Dense features, of nodes and of edges, and fields stay on disk: the file must
    stay open for them.

    stored_edges: the edges stay in the file too, but for the row pointers. Memory: 30 bytes per node, and the edges.
    """
    meta = file.meta
    features: RowReader | Csr | None
    if meta.sparse_features:
        indptr, indices, values = (file.read(f"nodes/features_csr/{name}") for name in ("indptr", "indices", "data"))
        features = Csr(indptr, indices, values, meta.num_features)
    else:
        features = RowsOnDisk(file, "nodes/features") if "nodes/features" in file else None
    data = GraphData(
        edges=load_edges(file, "", stored_edges),
        edges_out=None if meta.undirected else load_edges(file, "_out", stored_edges),
        features=features,
        labels=file.read("nodes/labels"),
        split=file.read("nodes/split"),
        original_id=file.read("nodes/original_id"),
        cluster_offsets=file.read("clusters/offsets"),
        num_classes=meta.num_classes,
        uuid=meta.uuid,
        cluster_graph=file.cluster_graph() if "clusters/graph" in file else None,
        source=meta.source,
        seed=meta.seed,
        versions=meta.versions,
        num_self_loops=meta.num_self_loops,
        node_type=file.read("nodes/type") if meta.num_node_types else None,
        type_names=meta.type_names,
        ids=_load_ids(file),
        edge_features=RowsOnDisk(file, "edges/features") if meta.num_edge_features else None,
        num_feature_parts=meta.num_feature_parts,
        num_label_parts=meta.num_label_parts,
        links=load_links(file),
        bfloat16=meta.feature_type == BFLOAT16,
        feature_scales=read_scales(file),
        position=RowsOnDisk(file, POSITION) if meta.num_dimensions else None,
        volume=RowsOnDisk(file, VOLUME) if VOLUME in file else None,
        given=RowsOnDisk(file, GIVEN) if GIVEN in file else None,
        snapshots=load_series(file),
    )
    check_shape(file.path, data)
    return data


def _load_ids(file: GraphFile) -> RowReader | Words | None:
    """The users' ids, left in the file but for the offsets of words."""
    kind = kind_of_ids(file)
    if kind == "words":
        return Words(file.read(ID_OFFSETS), RowsOnDisk(file, ID_TEXT))
    return RowsOnDisk(file, ID_NUMBERS) if kind else None


def load_links(file: GraphFile) -> dict[str, GivenLinks]:
    """Held-out edges, left in the file."""
    found = {}
    for split in HELD:
        if name_of(split) in file:
            parts = [name_of(split, part) for part in (EDGES, NEGATIVES, TARGETS)]
            edges, negatives, targets = (RowsOnDisk(file, part) if part in file else None for part in parts)
            assert edges is not None, "it is there"
            found[split] = GivenLinks(edges, negatives, targets, stored_counts(file, split))
    return found


def check_shape(path: Path, data: GraphData) -> None:
    """Raise GraphError for edges or an order that cannot be worked on; `verify` names the exact fault of such a
    file."""
    n, directions = data.num_nodes, [edges for edges in (data.edges, data.edges_out) if edges is not None]
    parts = (part for edges in directions for part in blocks(edges.indices, PIECE) if len(part))
    sound = (
        _rising(data.cluster_offsets, n)
        and all(_rising(edges.indptr, len(edges.indices)) for edges in directions)
        and all(part.min() >= 0 and part.max() < n for part in parts)
        and np.array_equal(np.sort(data.original_id), np.arange(n))
        and (data.node_type is None or len(data.node_type) == n)
        and all(each is None or each.shape[0] == n for each in (data.position, data.volume, data.given))
        and (data.snapshots is None or _in_shape(data.snapshots, n))
    )
    if not sound:
        raise GraphError(f"{path} is damaged; `python -m partition_tools verify {shlex.quote(str(path))}` says how")


def _in_shape(series: FieldSeries, n: int) -> bool:
    times = series.time.shape
    alike = times == series.number.shape == series.split.shape and len(times) == 1
    return alike and all(len(each.shape) == 3 and each.shape[:2] == (*times, n) for each in series.fields.values())


def _rising(pointers: np.ndarray, last: int) -> bool:
    return bool(pointers[0] == 0 and pointers[-1] == last and (np.diff(pointers) >= 0).all())
