"""Opening the graph file on all ranks, and reading each rank's share of it.

A file system answers the same small questions once per rank, and one after another. So rank 0 reads and checks the root
attributes, the descriptions of the datasets, the clusters and the map. The others get them from it, and open the file
for their own slabs alone. That holds for one file on a shared file system. If the ranks see different files (copies on
the disks of nodes, or a new file under the old name), each reads its own. They compare the facts (app/agreement.py).

Loading reads whole chunks once (graphfile/ranges.py), and checks everything that later code relies on (own_rows.py). It
never holds more than the rank's own share.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graph.local import Adjacency, LocalGraph, build_adjacency
from hpcgnn.graph.own_rows import OwnRows, read_edges
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graphfile.narrow import read_scales
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile, check_structure
from hpcgnn.memory.stored_rows import StoredRows
from hpcgnn.options.inputs import Inputs
from hpcgnn.placement.order import FoundEdges, find_ends, interior_last
from hpcgnn.placement.ownership import Ownership


def check_trainable(file: GraphFile, labelled: bool = True) -> None:
    """Raise GraphError for a graph without features or labels, FormatError for a file that breaks its attributes'
    promises. labelled: whether there must be classes.
    """
    check_structure(file)
    if labelled:
        check_labelled(file)


def check_labelled(file: GraphFile) -> None:
    """Raise GraphError for a graph without labels."""
    if file.meta.num_classes == 0:
        raise GraphError(
            f"{file.path} has no labels to train on; import it again with --labels FILE, or give --task links"
        )


def open_graph(path: str | Path, comm: Communicator, labelled: bool = True) -> GraphFile:
    """The GraphFile at `path`, checked to be one that can be trained on; labelled: whether it must have classes.
    Collective. Raises FormatError or GraphError, on all ranks together.
    """
    seen = _seen(path)
    alike = _all_alike(seen, comm)
    file = None
    try:
        with comm.together("opening the graph", on_one=alike):
            if comm.rank == 0 or not alike:
                file = GraphFile(path)
                check_trainable(file, labelled)
        if alike:
            values = comm.broadcast_object(None if file is None else asdict(file.meta))
            with comm.together("opening the graph"):
                file = file or GraphFile(path, GraphMeta(**values))
                if _seen(path) != seen:  # rank 0 may have read the one before
                    raise FormatError(f"{path} was replaced while the ranks opened it; start the job again")
    except BaseException:
        if file is not None:
            file.file.close()
        raise
    assert file is not None, "every rank has opened it"
    file.shared = alike
    return file


def _seen(path: str | Path) -> str:
    """The identity of the file at a path."""
    try:
        found = os.stat(path)
    except OSError:
        return "none"
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _all_alike(seen: str, comm: Communicator) -> bool:
    """Whether all ranks see the same. Collective."""
    digest = int.from_bytes(hashlib.sha256(seen.encode()).digest()[:7], "big")
    extremes = comm.allreduce_(torch.tensor([digest, -digest]), "control", "max")
    return bool(extremes[0] == -extremes[1])


def read_clusters(file: GraphFile, comm: Communicator) -> np.ndarray:
    """int64 (K + 1,): the first node of each cluster, and the number of nodes. Collective. Raises FormatError, on all
    ranks together.
    """
    offsets = None
    with comm.together("reading the clusters", on_one=file.shared):
        if comm.rank == 0 or not file.shared:
            offsets = file.read("clusters/offsets", dtype=np.int64)
            if offsets[0] != 0 or offsets[-1] != file.meta.num_nodes or (np.diff(offsets) < 0).any():
                raise FormatError(
                    f"{file.path}: clusters/offsets do not run from 0 to {file.meta.num_nodes}; the file is corrupted"
                )
    if file.shared:
        return comm.broadcast_array(offsets, file.meta.num_clusters + 1, np.int64)
    assert offsets is not None, "every rank has read them"
    return offsets


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
    reads_on: bool = False,
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
        reads_on: whether the task reads more rows of the file.

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
                find_ends(read_edges(file, suffix, ranges, keep_edges), ownership)
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
        position = rows.position(dtype)
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
        source=rows if reads_on else None,
        position=position,
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
