"""Blocks of a graph that is read from disk a few times: memory for the nodes alone, whatever the number of edges.

This is restreamed Fennel. Tsourakakis, Gkantsidis, Radunovic, Vojnovic, "FENNEL: Streaming Graph Partitioning for
Massive Scale Graphs", WSDM 2014: nodes come one after another. Each goes to the block with most of its neighbours, less
a price that rises with the weight of the block. Nishimura and Ugander, "Restreaming Graph Partitioning", KDD 2013:
later passes know the blocks of all neighbours, and come close to a multilevel method's cut. Streaming methods with
several levels on a buffer (HeiStream, Faraj and Schulz, JEA 2022) cut better in one pass, but there is time for several
here. Blocks are many more than clusters; METIS puts them together on the graph of blocks, whose edges are exact.

Nodes are handled in buffers of whole rows: all nodes of a buffer see the blocks as they were before it. That makes the
result the same on every machine, and lets numpy do the work.
"""

from collections.abc import Callable, Iterable

import numpy as np
import scipy.sparse

from hpcgnn.graphfile.ranges import row_blocks
from hpcgnn.graphfile.schema import Edges
from hpcgnn.placement.clusters import fair_share, map_clusters
from partition_tools.graph.quality import cluster_graph
from partition_tools.partitioners import metis
from partition_tools.partitioners.dissection import dissect, whole_graph
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.partitioners.weights import clusters_of_connected, with_isolated

NAME = "restreaming"
HELP = "memory for the nodes alone: Fennel streams the edges a few times, METIS puts its blocks together"
NEW_FILE = False
NESTED = True
ranks = map_clusters
GAMMA = 1.5
PASSES = 5
SLACK = 1.1
#: Blocks for each cluster, and the most of all: METIS's graph of them may have the square of their number of edges.
BLOCKS_PER_CLUSTER, MOST_BLOCKS = 8, 4096
#: Buffers of a pass, unless they would have more edges than these or fewer: many small ones cut better.
BUFFERS, FEWEST, MOST = 32, 1 << 12, 1 << 22
#: (first row, end, indptr int64 from 0, columns int) of consecutive rows
Buffer = tuple[int, int, np.ndarray, np.ndarray]


def clusters(asked: ClusterRequest) -> Clusters:
    """(order int64 (n,), offsets int64 (K + 1,)) of `num_clusters` clusters, see `restreamed_clusters`."""
    part = whole_graph(asked.edges, asked.edges_out)
    return restreamed_clusters(Edges(part.graph.indptr, part.graph.indices), part.nodes, part.weights, asked)


def restreamed_clusters(graph: Edges, nodes: np.ndarray, weights: np.ndarray, asked: ClusterRequest) -> Clusters:
    """The clusters of the whole graph of a request.

    graph, nodes, weights: the parts of a split, see `weights.Weighed`; the indices of the graph may be anything
    that slices. Nodes of a block stay in their old order. Deterministic. Needs n >= K. Memory: 60 bytes per node, and
    the graph of the blocks.
    """
    num_nodes, num_clusters = len(asked.edges.indptr) - 1, asked.num_clusters
    connected = clusters_of_connected(num_nodes, len(nodes), num_clusters)
    order, offsets = _connected_clusters(graph, weights, connected, asked.seed, asked.progress)
    asked.progress(num_clusters - connected)
    return with_isolated(np.split(nodes[order], offsets[1:-1]), nodes, num_nodes, num_clusters)


def _connected_clusters(
    graph: Edges, weights: np.ndarray, num_clusters: int, seed: int, progress: Callable[[int], object]
) -> tuple[np.ndarray, np.ndarray]:
    """(order, offsets) of the rows of `graph`."""
    n = len(weights)
    num_blocks = min(n, max(num_clusters, min(BLOCKS_PER_CLUSTER * num_clusters, MOST_BLOCKS)))
    blocks = restreamed_blocks(lambda: _buffers(graph), weights, int(graph.indptr[-1]), num_blocks)
    blocks = np.unique(blocks, return_inverse=True)[1].astype(np.int32)
    if blocks.max() + 1 < num_clusters:  # fewer nodes than blocks are worth it for
        blocks = (np.arange(n) * num_blocks // n).astype(np.int32)
    count = int(blocks.max()) + 1
    coarse = cluster_graph(blocks, count, graph, directed=False)
    matrix = scipy.sparse.csr_matrix((coarse.data, coarse.indices, coarse.indptr), shape=(count, count))
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    block_weights = np.bincount(blocks, weights, count).astype(np.int64)
    block_order, block_offsets = dissect(matrix, num_clusters, metis.split, seed, progress, block_weights)
    place = np.empty(count, np.int32)
    place[block_order] = np.arange(count)
    nodes_before = np.concatenate([[0], np.cumsum(np.bincount(place[blocks], minlength=count))])
    return np.argsort(place[blocks], kind="stable"), nodes_before[block_offsets]


def _buffers(graph: Edges) -> Iterable[Buffer]:
    """The rows of a graph, some edges at a time."""
    indptr = graph.indptr
    for first, end in row_blocks(indptr, max(FEWEST, min(int(indptr[-1]) // BUFFERS, MOST))):
        columns = np.asarray(graph.indices[int(indptr[first]) : int(indptr[end])])
        yield first, end, indptr[first : end + 1] - indptr[first], columns


def restreamed_blocks(
    buffers: Callable[[], Iterable[Buffer]],
    weights: np.ndarray,
    num_edges: int,
    num_blocks: int,
    passes: int = PASSES,
) -> np.ndarray:
    """The block of each node, int32 (n,), values 0..num_blocks-1.

    buffers: gives all rows of the graph, in order, once for each pass. weights: of the nodes, positive int (n,).
    num_edges: of the graph, each counted in both directions. A block is at most SLACK times the mean weight; a
    heavier node counts as that. Deterministic. Memory: 12 bytes per node, 16 per block, and 60 per edge of a buffer.
    """
    limit = SLACK * fair_share(weights, num_blocks, SLACK)
    weights = np.minimum(weights, limit)
    total = float(weights.sum())
    blocks, loads = np.full(len(weights), -1, np.int32), np.zeros(num_blocks)
    # Fennel's price of a block of weight w: alpha gamma w^(gamma - 1), with alpha of its section 3, in weights.
    alpha = num_edges / 2 * num_blocks ** (GAMMA - 1) / max(total, 1) ** GAMMA
    for _ in range(passes):
        for first, end, indptr, columns in buffers():
            price = alpha * GAMMA * loads ** (GAMMA - 1) * (total / max(len(weights), 1))
            wanted = _best(indptr, blocks[columns], num_blocks, price)
            own, weight = blocks[first:end], weights[first:end]
            _move(own, wanted, weight, loads, limit)
            new = np.flatnonzero(own < 0)
            own[new] = _fill(weight[new], loads)
    return blocks


def _best(indptr: np.ndarray, neighbours: np.ndarray, num_blocks: int, price: np.ndarray) -> np.ndarray:
    """The block that each row has most neighbours in, less its price; -1 for rows without neighbours in any. int32."""
    wanted = np.full(len(indptr) - 1, -1, np.int32)
    rows = np.repeat(np.arange(len(wanted)), np.diff(indptr))
    known = neighbours >= 0
    keys, counts = np.unique(rows[known] * np.int64(num_blocks) + neighbours[known], return_counts=True)
    if len(keys) == 0:
        return wanted
    row, block = np.divmod(keys, num_blocks)
    score = counts - price[block]
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    best = np.repeat(np.maximum.reduceat(score, starts), np.diff(np.append(starts, len(row))))
    chosen = np.flatnonzero(score == best)[::-1]  # of equal ones the first stays
    wanted[row[chosen]] = block[chosen]
    return wanted


def _move(own: np.ndarray, wanted: np.ndarray, weight: np.ndarray, loads: np.ndarray, limit: float) -> None:
    """Move nodes to the blocks that they want, in place and in order, as long as a block has room."""
    movers = np.flatnonzero((wanted >= 0) & (wanted != own))
    movers = movers[np.argsort(wanted[movers], kind="stable")]
    target, heavy = wanted[movers], weight[movers].astype(np.float64)
    arrived = np.cumsum(heavy)
    starts = (
        np.flatnonzero(np.concatenate([[True], target[1:] != target[:-1]])) if len(target) else np.zeros(0, np.int64)
    )
    before = np.repeat(arrived[starts] - heavy[starts], np.diff(np.append(starts, len(target))))
    fits = loads[target] + (arrived - before) <= limit
    movers, target = movers[fits], target[fits]
    left = own[movers] >= 0
    np.subtract.at(loads, own[movers[left]], weight[movers[left]])
    np.add.at(loads, target, weight[movers])
    own[movers] = target


def _fill(weight: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """Blocks for nodes that no block wants or has room for: consecutive nodes together, the lightest blocks first."""
    if len(weight) == 0:
        return np.zeros(0, np.int32)
    order = np.argsort(loads, kind="stable")
    level = (loads.sum() + weight.sum()) / len(loads)
    room = np.cumsum(np.maximum(level - loads[order], 0))
    middle = np.cumsum(weight) - weight / 2
    place = order[np.minimum(np.searchsorted(room, middle), len(order) - 1)].astype(np.int32)
    np.add.at(loads, place, weight)
    return place
