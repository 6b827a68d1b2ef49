"""Reading a rank's share of the graph file.

Loading reads whole chunks once (graphfile/ranges.py), and checks everything that later code relies on (own_rows.py). It
never holds more than the rank's own share.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.graph.local import Adjacency, LocalGraph, build_adjacency
from hpcgnn.graph.opening import check_trainable, read_clusters
from hpcgnn.graph.own_rows import OwnRows, read_edges
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graphfile.narrow import read_scales
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.stored import StoredRows
from hpcgnn.options.inputs import Inputs
from hpcgnn.placement.order import FoundEdges, find_ends, interior_last
from hpcgnn.placement.ownership import Ownership


class TaskEdges:
    """Edges that a task takes out of a graph, and further edges that it reads: here none."""

    def take_out(
        self, file: GraphFile, ranges: list[tuple[int, int]], directions: list[FoundEdges], cap: int, comm: Communicator
    ) -> tuple[dict[str, FoundEdges], np.ndarray | None]:
        """Take edges out of all directions, in the order of the file; the remaining ones replace them.
        Collective.

        ranges: as of OwnRows; cap: rows of a round. Returns ({name: the in-edges taken out, without weights and
        types}; bool (E_p,), the in-edges that remain, None for all of them).
        """
        return {}, None

    def read(self, file: GraphFile, original_id: torch.Tensor, cap: int, comm: Communicator) -> dict[str, Adjacency]:
        """{name: further edges that end at own nodes}. Collective. original_id: int64 (n_p,), in the local order."""
        return {}


#: store(the LocalGraph without its features, OwnRows): a matrix that holds them elsewhere than in memory, or None.
#: Collective.
StoreFeatures = Callable[[LocalGraph, OwnRows], StoredRows | None]


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
    task_edges: TaskEdges = TaskEdges(),
    edge_features: bool = False,
    store: StoreFeatures = lambda local, source: None,
    feature_type: torch.dtype | None = None,
    clusters: bool = False,
    relations: Sequence[int] = (),
) -> LocalGraph:
    """Read this rank's share of an open GraphFile. Collective.

    Args:
        file: the graph file.
        cluster_to_rank: int32 (K,), or (n,) to deal out single nodes.
        cap: halo rows of a round at most.
        self_loops: 'add' or 'keep'.
        dtype: computing precision.
        keep_edges: keep the edges' weights and types in lists (EdgeList).
        watch: watch(phase) is entered for the phases 'load' and 'plan'.
        inputs: the kinds of input columns.
        labelled: as of `OwnRows.labels`.
        task_edges: those of the task.
        edge_features: whether to keep the file's features of edges; only with keep_edges.
        store: see `StoreFeatures`.
        feature_type: of the file's dense features in memory; None: `dtype`.
        clusters: whether to keep the clusters of own nodes.
        relations: as of `read_edges`.

    Raises:
        FormatError, GraphError: on all ranks together, for corrupted files and contents that cannot be trained on.
    """
    file.progress, meta = comm.heartbeat.beat, file.meta
    with watch("load"):
        offsets = read_clusters(file, comm)
        with comm.together("reading the graph"):
            if not file.shared:
                check_trainable(file)
            single = len(cluster_to_rank) == meta.num_nodes != meta.num_clusters
            ownership = Ownership(np.arange(meta.num_nodes + 1) if single else offsets, cluster_to_rank, comm.size)
            ranges = ownership.ranges(comm.rank)
            cluster = _clusters(offsets, ranges) if clusters else None
            directions = [
                find_ends(read_edges(file, suffix, ranges, keep_edges, relations), ownership)
                for suffix in ([""] if meta.undirected else ["", "_out"])
            ]
            del offsets, ownership
        aside, remaining = task_edges.take_out(file, ranges, directions, cap, comm)
        names = list(aside)
        directions += aside.values()
        del aside
        remaining = remaining if edge_features or inputs.edges else None
        with comm.together("reading the graph"):
            order = interior_last(directions, comm.rank)
    # What is needed beside the edges to make their blocks is gone before the features, the largest part, are read.
    with watch("plan"):

        def built() -> Adjacency:
            # Named one by one: a call with *arguments would hold the edges until it returns.
            return build_adjacency(
                directions.pop(0), order, comm, cap, self_loops, dtype, keep_edges, meta.num_edge_types
            )

        inward = built()
        outward = inward if meta.undirected else built()
        others = {name: build_adjacency(directions.pop(0), order, comm, cap, "keep", dtype) for name in names}
    rows = OwnRows(file, ranges, order, inputs, feature_type or dtype)
    with watch("load"), comm.together("reading the graph"):
        if cluster is not None and order.number is not None:
            cluster = cluster[order.taken()]
        node_type, (labels, split), original_id = rows.node_type(), rows.labels(labelled), rows.original_id()
    with watch("plan"):
        others |= task_edges.read(file, original_id, cap, comm)
    local = LocalGraph(
        inward=inward,
        outward=outward,
        features=torch.empty(len(split), 0, dtype=dtype),
        labels=labels,
        split=split,
        original_id=original_id,
        num_nodes=meta.num_nodes,
        num_classes=meta.num_classes,
        task=meta.task,
        node_type=node_type,
        cluster=None if cluster is None else torch.from_numpy(cluster),
        task_edges=others,
    )
    with watch("load"):
        elsewhere = store(local, rows)
    with watch("load"), comm.together("reading the graph"):
        features: torch.Tensor | SparseRows | StoredRows
        features = rows.features(inward, remaining) if elsewhere is None else elsewhere
        scales = read_scales(file) if feature_type == torch.int8 else None
        if edge_features:
            undirected, inward = outward is inward, inward.carrying(rows.edge_features(inward, dtype, remaining))
            outward = inward if undirected else outward
    factors = None if scales is None else torch.from_numpy(scales)
    return replace(local, inward=inward, outward=outward, features=features, feature_scales=factors)
