"""METIS clusters in an order that keeps neighbours near each other, and METIS maps of clusters to ranks.

Cluster order is worth a factor of two in the aggregation kernel, because the rows that a row needs were touched a moment
before. Within a cluster METIS sees to that; between clusters the order does, found by bisecting the weighted graph of the
clusters recursively, so that clusters which share many edges end up on the same side of most cuts.
"""

import numpy as np
import scipy.sparse

from hpcgnn.graph.clusters import map_clusters, metis
from partition_tools.quality import cluster_graph

NAME = "metis"
HELP = "few edges between ranks"
NEW_FILE = False
SMALLEST_BISECTION = 3


def ranks(sizes, graph, num_ranks, seed):
    """Clusters to ranks, see `hpcgnn.graph.clusters.map_clusters`."""
    return map_clusters(sizes, graph, num_ranks, seed)


def clusters(edges, edges_out, original_id, num_clusters, seed):
    """(order int64 (n,) of old node ids, offsets int64 (K + 1,)) of exactly `num_clusters` clusters, none of them empty.

    Nodes of a cluster stay in their old order. Memory: METIS with 64-bit ids, about 60 bytes per directed edge.
    """
    n = len(edges.indptr) - 1
    parts = metis(*pattern(edges, edges_out), None, num_clusters, seed)
    _split_largest(parts, num_clusters)
    place = np.empty(num_clusters, np.int64)
    place[cluster_order(cluster_graph(parts, num_clusters, edges, edges_out is not None), seed)] = np.arange(num_clusters)
    parts = place[parts]
    order = np.argsort(parts, kind="stable")
    return order, np.searchsorted(parts[order], np.arange(num_clusters + 1)) if n else np.zeros(num_clusters + 1, np.int64)


def pattern(edges, edges_out):
    """(indptr, indices) that METIS accepts: symmetric, without self loops and parallel edges."""
    n = len(edges.indptr) - 1
    matrix = scipy.sparse.csr_matrix((np.ones(len(edges.indices), np.int8), edges.indices, edges.indptr), shape=(n, n), copy=False)
    if edges_out is not None:
        matrix = matrix.astype(bool) + matrix.T.tocsr().astype(bool)
    row = np.repeat(np.arange(n, dtype=matrix.indices.dtype), np.diff(matrix.indptr))
    keep = matrix.indices != row
    keep[1:] &= (matrix.indices[1:] != matrix.indices[:-1]) | (row[1:] != row[:-1])
    indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[matrix.indptr]
    return indptr, matrix.indices[keep].astype(np.int64)


def _split_largest(parts, num_clusters):
    """METIS leaves parts empty when they are few nodes each: halve the largest ones into them, in place."""
    counts = np.bincount(parts, minlength=num_clusters)
    for empty in np.flatnonzero(counts == 0):
        largest = int(np.argmax(counts))
        members = np.flatnonzero(parts == largest)
        parts[members[len(members) // 2:]] = empty
        counts[empty], counts[largest] = len(members) - len(members) // 2, len(members) // 2


def cluster_order(graph, seed):
    """Clusters in an order that keeps heavily connected ones together: int64 (K,)."""
    count = len(graph.indptr) - 1
    matrix = scipy.sparse.csr_matrix((graph.data, graph.indices, graph.indptr), shape=(count, count)).tocoo()
    keep = matrix.row != matrix.col
    matrix = scipy.sparse.csr_matrix((matrix.data[keep], (matrix.row[keep], matrix.col[keep])), shape=(count, count))
    order, pending = [], [np.arange(count)]
    while pending:
        members = pending.pop()
        if len(members) <= SMALLEST_BISECTION:
            order.append(members)
            continue
        part = matrix[members][:, members].tocsr()
        side = metis(part.indptr, part.indices, part.data, 2, seed)
        if side.all() or not side.any():
            side = np.arange(len(members)) >= len(members) // 2
        pending += [members[side == 1], members[side == 0]]
    return np.concatenate(order)
