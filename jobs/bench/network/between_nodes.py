"""Count the rows that cross between nodes in one exchange of a graph file's map. Nothing is trained.

    python jobs/bench/network/between_nodes.py --graph rmat.h5 planted.h5 --ranks 64 --per-node 4 8 16

Columns: rows, or rows and sums of rows (least), for ranks that send each other messages (`--intra-node messages`) and
for nodes that do (`shared`). All are in units of the nodes of the graph. The last column is nodes over ranks, least.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from tabulate import tabulate

from hpcgnn.estimate.counts.between_nodes import Nodes
from hpcgnn.estimate.counts.shares import Counter
from hpcgnn.graphfile.storage import GraphFile

COLUMNS = ["graph", "ranks", "on a node", "rows, ranks", "least, ranks", "rows, nodes", "least, nodes", "of messages"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="+", required=True, metavar="FILE.h5")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--per-node", nargs="+", type=int, default=[8], metavar="N", help="ranks on a node")
    options = parser.parse_args()
    lines = [line for graph in options.graph for line in counted(graph, options.ranks, options.per_node)]
    print(tabulate(lines, COLUMNS, floatfmt=".3f"))
    return 0


def counted(graph, ranks, groups):
    """Yield the lines of the table for nodes of each number of ranks."""
    with GraphFile(graph) as file:
        name = next(iter(file.partitionings()))
        cluster_to_rank, n = file.cluster_map(name, ranks)[0], file.meta.num_nodes

        def inward(halo, between=None):
            every = np.ones(n, bool)
            return Counter(file, cluster_to_rank, ranks, halo, between).halo(every, every)[0]

        of_ranks = [inward(halo) for halo in ("rows", "least")]
        for per_node in groups:
            crossing = [
                each.rows[(each.receiver - each.offset) % ranks // per_node != each.receiver // per_node].sum() / n
                for each in of_ranks
            ]
            nodes = [inward(halo, Nodes(ranks, per_node)).rows.sum() / n for halo in ("rows", "least")]
            yield [Path(graph).stem, ranks, per_node, *crossing, *nodes, nodes[1] / max(1 / n, crossing[1])]


if __name__ == "__main__":
    sys.exit(main())
