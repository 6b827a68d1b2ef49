#!/usr/bin/env python3
"""How many rows cross between nodes in one exchange, where ranks exchange them and where nodes do.

Consecutive ranks of a stored map are put on nodes. With `--intra-node messages` a row crosses once for each rank of
another node that needs it. With `--intra-node shared` it crosses once for each node. Nothing is trained: the rows are
counted from the graph file, as `hpcgnn estimate` counts them. All rows are in units of the nodes of the graph, but for
those of the busiest node, which are over the mean of all nodes.
"""

import argparse
import sys

import numpy as np
from tabulate import tabulate

from hpcgnn.estimate.counts.shares import Counter
from hpcgnn.graphfile.storage import GraphFile

EPILOG = """example:
  python jobs/bench/network/between_nodes.py --graph g1.h5 --partition metis --ranks 64 --per-node 4 8 16
"""
COLUMNS = ["ranks on a node", "halo", "messages", "shared", "shared / messages", "peers", "(shared)", "busiest node"]


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graph", required=True, metavar="FILE.h5")
    parser.add_argument("--partition", required=True, metavar="NAME", help="the stored map")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--per-node", type=int, nargs="+", default=[4, 8, 16], metavar="N", help="ranks on a node")
    options = parser.parse_args()
    with GraphFile(options.graph) as file:
        ranks = file.cluster_map(options.partition, options.ranks)[0].astype(np.int64)
        rows = [row for halo in ("rows", "least") for row in counted(file, ranks, options, halo)]
    print(tabulate(sorted(rows, key=lambda row: row[0]), COLUMNS, floatfmt=".3f"))
    return 0


def counted(file, ranks, options, halo):
    """The rows of the table for what is sent: rows, or the least of rows and sums."""
    nodes_of_graph, by_rank = file.meta.num_nodes, counts(file, ranks, options.ranks, halo)
    for per_node in options.per_node:
        sender = (by_rank.receiver - by_rank.offset) % by_rank.ranks
        crosses = by_rank.receiver // per_node != sender // per_node
        peers = np.bincount(by_rank.receiver[crosses], minlength=options.ranks).max()
        nodes = -(-options.ranks // per_node)
        by_node = counts(file, ranks // per_node, nodes, halo)
        there, here = by_rank.rows[crosses].sum() / nodes_of_graph, by_node.rows.sum() / nodes_of_graph
        busiest = by_node.largest * nodes / max(1, by_node.rows.sum())
        yield [per_node, halo, there, here, here / max(there, 1e-30), peers, by_node.peers.max(), busiest]


def counts(file, parts, size, halo):
    """The HaloCounts of what aggregates features, of so many parts of the graph."""
    return Counter(file, parts.astype(np.int32), size, halo).shares().inward


if __name__ == "__main__":
    sys.exit(main())
