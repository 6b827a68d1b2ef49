"""A graph file's first clusters: found, and the graph brought into their order."""

import contextlib
from typing import Any

import numpy as np

from hpcgnn.graphfile.schema import GraphData, GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.graph.loading import load_graph
from partition_tools.graph.quality import cluster_graph
from partition_tools.partitioners.metis_process import end as end_metis
from partition_tools.partitioners.reorder import reordered
from partition_tools.partitioners.request import ClusterRequest
from partition_tools.workspace.scratch import Scratch

#: Bytes for an edge of one direction in memory: as read, as a pattern, and in the new order; more for each attribute.
EDGE_BYTES, ATTRIBUTE_BYTES, NODE_BYTES = 40, 8, 60


def needed_bytes(meta: GraphMeta) -> int:
    """Bytes for clustering and ordering the edges of a graph in memory, without METIS's own."""
    numbers = 2 if meta.num_edge_features else 0  # of their rows, as long as two attributes
    each = EDGE_BYTES + ATTRIBUTE_BYTES * (meta.weighted + meta.typed + numbers)
    return meta.num_edges * each * (1 if meta.undirected else 2) + meta.num_nodes * NODE_BYTES


def clustered(
    file: GraphFile,
    maker: Any,
    num_clusters: int,
    seed: int,
    work: Scratch,
    versions: dict[str, str],
) -> GraphData:
    """`GraphData` of an open `GraphFile` in the order of `num_clusters` new clusters, with their graph.

    maker: a module of `partitioners`. work: for edges and features that do not fit in its memory; the arrays are then
    mapped files of it.
    """
    needed = needed_bytes(file.meta)
    if needed > work.memory and not maker.ON_DISK:
        work.reporter.warn(
            f"--method {maker.NAME} keeps all edges in memory, about {needed / 2**30:.1f} GiB, more than --memory; "
            "the methods kaminpar and random-nodes leave edges on disk"
        )
    data = load_graph(file, stored_edges=needed > work.memory and maker.ON_DISK)
    title = f"splitting {data.num_nodes:,} nodes into {num_clusters:,} clusters ({maker.NAME})"
    with work.reporter.bar(num_clusters, title, "clusters") as progress, contextlib.ExitStack() as stack:
        stack.callback(end_metis)  # it gives its memory back
        asked = ClusterRequest(data.edges, data.edges_out, data.original_id, num_clusters, seed, progress)
        order, offsets = maker.clusters(asked, work)
    work.reporter.stage("reordering")
    data = reordered(data, order, offsets, work, versions)
    parts = np.repeat(np.arange(num_clusters, dtype=np.int32), np.diff(offsets))
    work.reporter.stage("counting edges between clusters")
    data.cluster_graph = cluster_graph(parts, num_clusters, data.edges, data.edges_out is not None)
    return data
