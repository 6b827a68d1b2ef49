"""Shares of a graph from a few numbers.

All ranks are alike. Both ends of cut edges are drawn by their degrees. So all ranks need hubs, which count once for
each rank. With the fewest rows (`--halo least`), a sum of rows serves many edges of a hub.
"""

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.counts.halo_counts import HaloCounts
from hpcgnn.estimate.counts.shares import SAMPLE, Shares
from hpcgnn.graphfile.labels import CLASSIFICATION
from hpcgnn.graphfile.schema import GraphMeta

# Edges between two ranks that are drawn to see how many rows and sums would serve them.
_DRAWN = 200_000
_SEED = 1


def assumed_meta(stats: Stats, task: str = "auto") -> GraphMeta:
    """Return the metadata of such a graph: undirected, dense features, and labels of the task.

    Args:
        stats: numbers of the graph.
        task: the task; `auto` has one class per node.
    """
    return GraphMeta(
        num_nodes=stats.nodes,
        num_edges=stats.edges,
        num_clusters=stats.nodes,
        num_classes=stats.classes,
        num_features=stats.features,
        num_self_loops=0,
        undirected=True,
        task=CLASSIFICATION if task == "auto" else task,
        sparse_features=False,
        weighted=False,
        typed=False,
        uuid="",
        source="--stats",
        seed=0,
        versions={},
        num_edge_types=0,
        num_node_types=0,
        type_names={},
    )


def assumed_shares(stats: Stats, ranks: int, cut_share: float, train_share: float, fewest: bool = False) -> Shares:
    """Return the Shares of a balanced map.

    Args:
        stats: numbers of the graph.
        ranks: number of ranks.
        cut_share: share of cut edges.
        train_share: share of training nodes.
        fewest: whether ranks send the fewest rows and sums of rows, or all needed rows.
    """
    degrees = _degrees(stats)
    nodes, edges = stats.nodes / ranks, stats.edges / ranks
    cut = cut_share * (1 - 1 / ranks)
    remote = edges * cut
    # A node of degree d is the source of a cut edge into this rank with the chance of d among all.
    others = stats.nodes - nodes
    chance = remote * degrees / max(1.0, float(degrees.mean()) * max(1.0, others))
    received = min(remote, others * float(np.mean(-np.expm1(-chance))))
    outer = nodes * float(np.mean(-np.expm1(degrees * np.log1p(-min(cut, 1 - 1e-9)))))

    def each(value: float) -> np.ndarray:
        return np.full(ranks, round(value), np.int64)

    rows = _even(ranks, received)
    share = _covered(degrees, nodes, remote / max(1, ranks - 1)) if fewest and ranks > 1 else 1.0
    halo = _even(ranks, received * share)
    own, far = each(edges - remote), each(remote)
    return Shares(
        *(each(nodes), each(nodes * train_share), each(outer), each(0), own, far, own, far, halo, halo),
        map_rows=int(rows.rows.sum()),
        degrees=degrees.astype(np.int64),
    )


def _covered(degrees: np.ndarray, nodes: float, edges: float) -> float:
    """Return the size of a minimum cover of the edges between two ranks, as a share of the needed rows.

    Both ends of the edges are drawn by their degrees.

    Args:
        degrees: degrees of a sample of nodes.
        nodes: number of nodes of a rank.
        edges: number of edges between the two.
    """
    factor = min(1.0, _DRAWN / max(1.0, edges))
    size, count = max(1, round(nodes * factor)), max(1, round(edges * factor))
    draw = np.random.default_rng(_SEED)
    pairs = list[np.ndarray]()
    while not pairs or (len(pairs) * count < _DRAWN // 10 and len(pairs) < 64):  # few edges say little
        ends = []
        for _ in range(2):
            weight = draw.choice(degrees, size).astype(np.float64)
            ends.append(draw.choice(size, count, p=weight / weight.sum()))
        pairs.append(np.stack(ends, 1) + len(pairs) * size)
    edge = np.concatenate(pairs)
    edge = edge[np.lexsort((edge[:, 1], edge[:, 0]))]
    sources, starts = np.unique(edge[:, 0], return_index=True)
    targets, indices = np.unique(edge[:, 1], return_inverse=True)
    indptr = torch.from_numpy(np.append(starts, len(edge)).astype(np.int64))
    cover = kernels.least_cover(indptr, torch.from_numpy(indices.astype(np.int32)), len(targets))[0]
    return cover / len(sources)


def _even(ranks: int, received: float) -> HaloCounts:
    """Every rank receives as much from each other."""
    rows = received / max(1, ranks - 1)
    receiver, offset = np.divmod(np.arange(ranks * (ranks - 1)), max(1, ranks - 1))
    # Less than a row from each: some of them send one.
    whole = np.full(len(receiver), int(rows)) + (((receiver + offset) * (rows % 1)) % 1 < rows % 1)
    there = whole > 0
    return HaloCounts(ranks, receiver[there], offset[there] + 1, whole[there].astype(np.int64))


def _degrees(stats: Stats) -> np.ndarray:
    """A sample with the right mean: equal, or by a power law."""
    mean = stats.edges / stats.nodes
    if not stats.exponent:
        return np.full(SAMPLE, mean)
    chance = (np.arange(SAMPLE) + 0.5) / SAMPLE
    drawn = (1 - chance) ** (-1 / (stats.exponent - 1))
    drawn = np.minimum(drawn, stats.nodes)
    return drawn * (mean / drawn.mean())
