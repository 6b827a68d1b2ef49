"""Reading a rank's share of the graph file.

Loading reads whole chunks once (graphfile/ranges.py), checks everything that later code relies on (so that no index out
of range can reach a kernel, and no NaN a sum), and never holds more than the rank's own share.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.exchange.compact import agree_on_compact
from hpcgnn.graph.dense_rows import NUMPY, check_finite, read_dense
from hpcgnn.graph.edge_features import carrying, edge_means, read_edge_features
from hpcgnn.graph.local import Adjacency, LocalGraph, build_adjacency
from hpcgnn.graph.opening import check_trainable, read_clusters
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graphfile.labels import LABELS
from hpcgnn.graphfile.scales import read_scales
from hpcgnn.graphfile.schema import Edges
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.stored import StoredRows
from hpcgnn.options.inputs import Inputs
from hpcgnn.placement.order import FoundEdges, LocalOrder, find_ends, interior_last
from hpcgnn.placement.ownership import Ownership


@dataclass(frozen=True)
class FileFeatures:
    """The features of own nodes in the file.

    Attributes:
        ranges: [(start, stop)] of the own nodes in the file.
        order: their local order.
        columns: 0 for others than dense ones that stand alone.
        dtype: in which they are held.
    """

    file: GraphFile
    ranges: list[tuple[int, int]]
    order: LocalOrder
    columns: int
    dtype: torch.dtype


class Beside:
    """Further data that a task reads of a graph, or takes out of it: here none."""

    def take_out(
        self, file: GraphFile, ranges: list[tuple[int, int]], directions: list[FoundEdges], cap: int, comm: Communicator
    ) -> tuple[dict[str, FoundEdges], np.ndarray | None]:
        """Take edges out of those of all directions, in the order of the file; the remaining ones replace them.
        Collective.

        ranges: as of FileFeatures; cap: rows of a round. Returns ({name: the in-edges taken out, without weights and
        types}; bool (E_p,), the in-edges that remain, None for all of them).
        """
        return {}, None

    def read(self, file: GraphFile, original_id: torch.Tensor, cap: int, comm: Communicator) -> dict[str, Adjacency]:
        """{name: further edges that end at own nodes}. Collective. original_id: int64 (n_p,), in the local order."""
        return {}


#: store(the LocalGraph without its features, FileFeatures): a matrix that holds them elsewhere than in memory, or None.
#: Collective.
StoreFeatures = Callable[[LocalGraph, FileFeatures], StoredRows | None]


def read_indptr(file: GraphFile, group: str, ranges: list[tuple[int, int]]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """(indptr from 0, int64 (n_p + 1,); the spans of entries, list of (start, stop)) of the own slabs of a CSR
    group.
    """
    entries = file.shape(f"{group}/indices")[0]
    found = file.read(f"{group}/indptr", [(start, stop + 1) for start, stop in ranges], np.int64)
    ends = np.cumsum([stop + 1 - start for start, stop in ranges], dtype=np.int64)
    begins = np.concatenate([[0], ends])[:-1]
    falls = found[1:] < found[:-1]
    falls[ends[:-1] - 1] = False  # from one slab to the next
    if falls.any() or (len(found) and not 0 <= found.min() <= found.max() <= entries):
        wrong = min([*np.flatnonzero(falls)[:1], *np.flatnonzero((found < 0) | (found > entries))[:1]])
        start, stop = ranges[np.searchsorted(ends, wrong, side="right")]
        raise FormatError(
            f"{file.path}: {group}/indptr is not monotone within 0..{entries} in rows {start}..{stop}; the file "
            "is corrupted, import the graph again"
        )
    spans = list(zip(found[begins].tolist(), found[ends - 1].tolist(), strict=True))
    if len(spans) == 0:
        return np.zeros(1, np.int64), spans
    if len(spans) == 1:
        found -= spans[0][0]
        return found, spans
    counts = np.diff(found)
    del found
    indptr = np.zeros(len(counts) + 2 - len(spans), np.int64)
    np.cumsum(np.delete(counts, ends[:-1] - 1), out=indptr[1:])
    return indptr, spans


def read_edges(
    file: GraphFile, suffix: str, ranges: list[tuple[int, int]], typed: bool, relations: Sequence[int] = ()
) -> Edges:
    """The edges of the own slabs of one direction ('' for in-edges, '_out' for out-edges), with indptr from 0. typed:
    with their types, if the file has any.
    relations: the types of the edges that are wanted, none of them for all.
    """
    indptr, spans = read_indptr(file, f"topology{suffix}", ranges)
    weight = file.read(f"edges{suffix}/weight", spans, np.float32) if file.meta.weighted else None
    if weight is not None and not np.isfinite(weight).all():
        raise GraphError(
            f"{file.path}: edge weights hold NaN or infinite values; clean them and import the graph again"
        )
    wanted = typed or len(relations) > 0
    kinds = read_types(file, f"edges{suffix}/type", spans, file.meta.num_edge_types) if wanted else None
    edges = Edges(indptr, file.read(f"topology{suffix}/indices", spans), weight, kinds)
    return edges.of_types(relations) if relations else edges


def read_types(
    file: GraphFile, name: str, ranges: list[tuple[int, int]], count: int, number: np.ndarray | None = None
) -> np.ndarray | None:
    """int32 types of edges or nodes in the ranges, checked against their number; None if the graph has none (count 0).
    number: as GraphFile.read has it."""
    if count == 0:
        return None
    kinds = file.read(name, ranges, number=number).astype(np.int32)
    if len(kinds) and not 0 <= kinds.min() <= kinds.max() < count:
        raise FormatError(
            f"{file.path}: {name} leaves the types: expected 0..{count - 1}, got {kinds.min()}..{kinds.max()}; "
            "import the graph again"
        )
    return kinds


def read_features(
    file: GraphFile, ranges: list[tuple[int, int]], dtype: torch.dtype, order: LocalOrder
) -> torch.Tensor | SparseRows:
    """The own rows of the features in the local order, finite."""
    if not file.meta.sparse_features:
        return read_dense(file, ranges, dtype, order.number)
    indptr, spans = read_indptr(file, "nodes/features_csr", ranges)
    columns = file.read("nodes/features_csr/indices", spans).astype(np.int32)
    if len(columns) and not 0 <= columns.min() <= columns.max() < file.meta.num_features:
        raise FormatError(
            f"{file.path}: nodes/features_csr/indices leave 0..{file.meta.num_features - 1}; the file is corrupted"
        )
    data = file.read("nodes/features_csr/data", spans, np.float32)
    check_finite(file, torch.from_numpy(data), "node")
    if order.number is not None:
        indptr, entries = order.rows(indptr)
        columns, data = columns[entries], data[entries]
    return sparse_rows(indptr, columns, data, file.meta.num_features, dtype)


def make_features(
    file: GraphFile,
    ranges: list[tuple[int, int]],
    dtype: torch.dtype,
    order: LocalOrder,
    inputs: Inputs,
    inward: Adjacency,
    remaining: np.ndarray | None = None,
) -> torch.Tensor | SparseRows:
    """The columns of own nodes that do not change, in the local order: (n_p, F).

    They are of the file, of degrees and of edges, or ones.

    inward: the in-edges of own nodes, added self loops included. Sparse features of the file stand by themselves.
    remaining: see `read_edge_features`.
    """
    if inputs == Inputs():
        return read_features(file, ranges, dtype, order)
    counts = inward.edge_counts
    parts = [torch.empty(len(counts), 0, dtype=dtype)]
    if inputs.file:
        rows = read_features(file, ranges, dtype, order)
        assert isinstance(rows, torch.Tensor), "refused where the options were read"
        parts.append(rows)
    if inputs.ones:
        parts.append(torch.ones(len(counts), 1, dtype=dtype))
    if inputs.degree:
        parts.append(torch.log1p(counts.double()).to(dtype)[:, None])
    if inputs.edges:
        means = torch.from_numpy(edge_means(file, *read_indptr(file, "topology", ranges), order, remaining)).to(dtype)
        check_finite(file, means, "edge")
        parts.append(means)
    return torch.cat(parts, 1)


def read_labels(
    file: GraphFile, ranges: list[tuple[int, int]], number: np.ndarray | None = None, labelled: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """(labels, split) of the own nodes, checked: labels as a rank has them (graphfile/labels.py), split uint8 (n_p,).
    number: as GraphFile.read has it; labelled: whether the file has labels of its task.
    """
    split = file.read("nodes/split", ranges, np.uint8, number)
    kind = LABELS[file.meta.task]
    if not labelled:
        return torch.from_numpy(kind.none(len(split), file.meta.num_classes)), torch.from_numpy(split)
    labels = file.read("nodes/labels", ranges, number=number)
    if fault := kind.fault(labels, file.meta.num_classes):
        raise GraphError(f"{file.path}: {fault}; import the graph again with the right labels")
    return torch.from_numpy(kind.loaded(labels)), torch.from_numpy(split)


def read_original_id(file: GraphFile, ranges: list[tuple[int, int]], number: np.ndarray | None = None) -> torch.Tensor:
    """int64 (n_p,): the ids that randomness is keyed by and predictions are ordered by, each a node of the graph."""
    ids = file.read("nodes/original_id", ranges, np.int64, number)
    if len(ids) and not 0 <= ids.min() <= ids.max() < file.meta.num_nodes:
        raise FormatError(
            f"{file.path}: nodes/original_id leave 0..{file.meta.num_nodes - 1}; the file is corrupted, import it again"
        )
    return torch.from_numpy(ids)


def _clusters(offsets: np.ndarray, ranges: list[tuple[int, int]]) -> np.ndarray:
    """int32 (n_p,): the clusters of the nodes in these ranges."""
    parts = [np.searchsorted(offsets, np.arange(*each), side="right") - 1 for each in ranges]
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32)


def load_local_graph(
    file: GraphFile,
    cluster_to_rank: np.ndarray,
    comm: Communicator,
    cap: int,
    self_loops: str,
    dtype: torch.dtype,
    keep_edges: bool = False,
    watch: Callable[[str], AbstractContextManager[object]] = contextlib.nullcontext,
    inputs: Inputs = Inputs(),
    labelled: bool = True,
    beside: Beside = Beside(),
    edge_features: bool = False,
    store: StoreFeatures = lambda local, source: None,
    feature_type: torch.dtype | None = None,
    clusters: bool = False,
    relations: Sequence[int] = (),
) -> LocalGraph:
    """Read this rank's share of an open GraphFile. Collective.

    cluster_to_rank: int32 (K,), or (n,) to deal out single nodes. cap: halo rows of a round at most. self_loops: 'add'
    or 'keep'. dtype: computing precision. keep_edges: keep the edges' weights and types in lists (EdgeList).
    inputs: the kinds of features. labelled: as of `read_labels`. beside: further data of the task.
    edge_features: whether to keep those of the file too; only with keep_edges.
    store: see `StoreFeatures`. feature_type: of the file's dense features in memory; None: `dtype`. clusters:
    whether to keep the clusters of own nodes. relations: as of `read_edges`.
    watch(phase): entered for the phases 'load' and 'plan'. Raises FormatError or GraphError, on all ranks together, for
    corrupted files and contents that cannot be trained on.
    """
    file.progress = comm.heartbeat.beat
    with watch("load"):
        offsets = read_clusters(file, comm)
        with comm.together("reading the graph"):
            if not file.shared:
                check_trainable(file)
            stored = offsets if clusters else None
            if len(cluster_to_rank) == file.meta.num_nodes != file.meta.num_clusters:
                offsets = np.arange(file.meta.num_nodes + 1)
            ownership = Ownership(offsets, cluster_to_rank, comm.size)
            ranges = ownership.ranges(comm.rank)
            cluster = None if stored is None else _clusters(stored, ranges)
            suffixes = [""] if file.meta.undirected else ["", "_out"]
            directions = [
                find_ends(read_edges(file, suffix, ranges, keep_edges, relations), ownership) for suffix in suffixes
            ]
            del offsets, ownership, stored
        taken, remaining = beside.take_out(file, ranges, directions, cap, comm)
        names = list(taken)
        directions += taken.values()
        del taken
        remaining = remaining if edge_features or inputs.edges else None
        with comm.together("reading the graph"):
            order = interior_last(directions, comm.rank)
            if cluster is not None and order.number is not None:
                cluster = cluster[order.taken()]
        aside = directions[len(suffixes) :]
        del directions[len(suffixes) :]
    # What is needed beside the edges to make their blocks is gone before the features, the largest part, are read.
    loop_type = file.meta.num_edge_types
    with watch("plan"):
        # Named one by one: a call with *arguments would hold the edges until it returns.
        inward = build_adjacency(directions.pop(0), order, comm, cap, self_loops, dtype, keep_edges, loop_type)
        outward = inward
        if directions:
            outward = build_adjacency(directions.pop(0), order, comm, cap, self_loops, dtype, keep_edges, loop_type)
        others = {name: build_adjacency(aside.pop(0), order, comm, cap, "keep", dtype) for name in names}
    with watch("load"), comm.together("reading the graph"):
        node_type = read_types(file, "nodes/type", ranges, file.meta.num_node_types, order.number)
        labels, split = read_labels(file, ranges, order.number, labelled)
        original_id = read_original_id(file, ranges, order.number)
    with watch("plan"):
        others |= beside.read(file, original_id, cap, comm)
    local = LocalGraph(
        inward=inward,
        outward=outward,
        features=torch.empty(len(split), 0, dtype=dtype),
        labels=labels,
        split=split,
        original_id=original_id,
        num_nodes=file.meta.num_nodes,
        num_classes=file.meta.num_classes,
        task=file.meta.task,
        node_type=None if node_type is None else torch.from_numpy(node_type),
        cluster=None if cluster is None else torch.from_numpy(cluster),
        beside=others,
    )
    alone, held_type = inputs == Inputs() and not file.meta.sparse_features, feature_type or dtype
    with watch("load"):
        source = FileFeatures(file, ranges, order, file.meta.num_features if alone else 0, held_type)
        elsewhere = store(local, source)
    with watch("load"), comm.together("reading the graph"):
        features: torch.Tensor | SparseRows | StoredRows
        scales = read_scales(file) if feature_type == torch.int8 else None
        if elsewhere is not None:
            features = elsewhere
        else:
            features = make_features(file, ranges, held_type, order, inputs, inward, remaining)
        if edge_features:
            indptr, spans = read_indptr(file, "topology", ranges)
            rows = read_edge_features(file, indptr, spans, order, inward, NUMPY[dtype], remaining)
            del indptr, spans, remaining
            check_finite(file, torch.from_numpy(rows), "edge")
            undirected, inward = outward is inward, carrying(inward, torch.from_numpy(rows))
            outward = inward if undirected else outward
    with watch("plan"):
        travels = isinstance(features, torch.Tensor) and not inputs.changing
        compact = agree_on_compact(cast(torch.Tensor, features), inward.plan, comm) if travels else None
    factors = None if scales is None else torch.from_numpy(scales)
    return replace(local, inward=inward, outward=outward, features=features, compact=compact, feature_scales=factors)
