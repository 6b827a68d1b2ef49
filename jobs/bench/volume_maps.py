#!/usr/bin/env python3
"""Would maps of clusters be better if they were made for the rows that are sent, and not for the edges that are cut?

Four maps of the clusters of a graph file to the same number of ranks:

  stored    the map in the file
  refined   the same, refined by Fiduccia and Mattheyses' moves of clusters for true volume: the halo rows of all ranks
  metis     METIS, edge cut, clusters weighed by their shares of nodes and of edges together
  mtkahypar Mt-KaHyPar, connectivity metric, which is the halo rows, weights as of metis (where it is installed)

The columns are halo rows and least rows (docs/how-it-works.md, "Rows or sums of rows") over the nodes of the graph, the
rows of the rank that sends or receives most, and the imbalance of nodes and of in-edges.
"""

import argparse
import sys

import numpy as np
from tabulate import tabulate

from hpcgnn.estimate.counts.shares import Counter
from hpcgnn.graphfile.schema import Csr
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.clusters import imbalance, metis
from hpcgnn.placement.refinement import LOOSE_IMBALANCE, MAX_IMBALANCE
from partition_tools.quality import cluster_sizes

EPILOG = """example:
  python jobs/bench/volume_maps.py --graph g1.h5 --partition metis --ranks 8
"""
COLUMNS = ["map", "halo rows / n", "least / n", "busiest, rows", "least", "imbalance (nodes)", "(in-edges)"]
PASSES = 20


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graph", required=True, metavar="FILE.h5")
    parser.add_argument("--partition", required=True, metavar="NAME", help="the stored map")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--share", type=float, default=1.0, help="of the nodes that Mt-KaHyPar is shown (default: all)")
    options = parser.parse_args()
    ranks, rows = options.ranks, []
    with GraphFile(options.graph) as file:
        nets = Nets(file)
        stored = file.cluster_map(options.partition, ranks)[0].astype(np.int64)
        for name, make in (
            ("stored", lambda: stored),
            ("refined", lambda: refined(nets, stored, ranks)),
            ("metis", lambda: metis(*nets.cluster_graph(file), ranks, vertex_weights=nets.weights)),
            ("mtkahypar", lambda: by_connectivity(nets, ranks, options.share)),
        ):
            found = make()
            if found is None:
                print("mtkahypar is not installed (pip install mtkahypar)", file=sys.stderr)
                continue
            rows.append([name, *measured(file, nets, found, ranks)])
            print("  ".join(map(str, rows[-1])), flush=True)
    print(tabulate(rows, COLUMNS))
    return 0


class Nets:
    """For every node the clusters that need its row: a hypergraph of the clusters with a net for each node.

    net, cluster: (pins,), by node; sizes: (K, 2), nodes and in-edges; weights: int64 (K,), both together.
    """

    def __init__(self, file):
        self.offsets = file.read("clusters/offsets", dtype=np.int64)
        self.clusters, nodes = len(self.offsets) - 1, file.meta.num_nodes
        self.cluster_of = np.repeat(np.arange(self.clusters), np.diff(self.offsets))
        self.indptr, self.indices = file.read("topology/indptr"), file.read("topology/indices")
        needs = self.indices.astype(np.int64) * self.clusters + np.repeat(self.cluster_of, np.diff(self.indptr))
        pins = np.unique(np.concatenate([needs, np.arange(nodes) * self.clusters + self.cluster_of]))
        self.net, self.cluster, self.nodes = pins // self.clusters, pins % self.clusters, nodes
        self.sizes = cluster_sizes("both", self.offsets, self.indptr, None).astype(float)
        self.weights = np.rint((self.sizes / self.sizes.sum(0)).sum(1) * 1e7).astype(np.int64)

    def cluster_graph(self, file):
        """(indptr, indices, weights) of the symmetric graph of the clusters."""
        graph: Csr = file.cluster_graph()
        row = np.repeat(np.arange(self.clusters), np.diff(graph.indptr))
        keep = (row != graph.indices) & (graph.data > 0)
        indptr = np.append(0, np.cumsum(np.bincount(row[keep], minlength=self.clusters)))
        return indptr, graph.indices[keep], graph.data[keep]


def measured(file, nets, parts, ranks):
    """The columns of one map."""
    rows, least = (Counter(file, parts.astype(np.int32), ranks, halo).shares().inward for halo in ("rows", "least"))
    balance = [f"{imbalance(np.bincount(parts, size, ranks)):.3f}" for size in nets.sizes.T]
    over = [f"{each.rows.sum() / nets.nodes:.4f}" for each in (rows, least)]
    return *over, rows.largest, least.largest, *balance


def refined(nets, parts, ranks):
    """Clusters go where they save most halo rows, within the usual bounds of balance, until none does."""
    parts, random = parts.copy(), np.random.default_rng(0)
    shares = nets.sizes * (ranks / nets.sizes.sum(0))
    loads = np.stack([np.bincount(parts, column, ranks) for column in shares.T], axis=1)
    limit = np.maximum(np.maximum((MAX_IMBALANCE, LOOSE_IMBALANCE), shares.max(0)), loads.max(0))
    holders = np.zeros((nets.nodes, ranks), np.uint16)  # clusters of a rank that need a node's row
    np.add.at(holders, (nets.net, parts[nets.cluster]), 1)
    order = np.argsort(nets.cluster, kind="stable")
    nets_of = np.split(nets.net[order], np.cumsum(np.bincount(nets.cluster, minlength=nets.clusters))[:-1])
    for _ in range(PASSES):
        moved = 0
        for cluster in random.permutation(nets.clusters):
            home, there = parts[cluster], holders[nets_of[cluster]]
            gain = np.count_nonzero(there[:, home] == 1) - np.count_nonzero(there == 0, axis=0)
            gain[((loads + shares[cluster]) > limit).any(1)] = 0
            gain[home] = 0
            best = int(np.argmax(gain))
            if gain[best] > 0:
                holders[nets_of[cluster], home] -= 1
                holders[nets_of[cluster], best] += 1
                loads[home] -= shares[cluster]
                loads[best] += shares[cluster]
                parts[cluster], moved = best, moved + 1
        if not moved:
            break
    return parts


def by_connectivity(nets, ranks, share):
    """Mt-KaHyPar's map with 3 % imbalance, or None where it is not installed."""
    try:
        import mtkahypar
    except ImportError:
        return None
    ends = np.append(np.flatnonzero(np.diff(nets.net, prepend=-1)), len(nets.net))
    shown = (np.diff(ends) > 1) & (np.random.default_rng(0).random(nets.nodes) < share)
    edges = [nets.cluster[ends[net] : ends[net + 1]].tolist() for net in np.flatnonzero(shown)]
    program = mtkahypar.initialize(2)
    mtkahypar.set_seed(0)
    context = program.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(ranks, 0.03, mtkahypar.Objective.KM1)
    context.logging = False
    graph = program.create_hypergraph(
        context, nets.clusters, len(edges), edges, nets.weights.tolist(), [1] * len(edges)
    )
    result = graph.partition(context)
    return np.array([result.block_id(cluster) for cluster in range(nets.clusters)])


if __name__ == "__main__":
    sys.exit(main())
