"""Count the rows that cross between nodes in one exchange of a graph file's map. Nothing is trained.

    python jobs/bench/network/between_nodes.py --graph rmat.h5 planted.h5 --ranks 64 --per-node 4 8 16

Columns: rows, or rows and sums of rows (least), for ranks that send each other messages (`--intra-node messages`) and
for nodes that do (`shared`). All are in units of the nodes of the graph. *Of messages* is nodes over ranks, least. The
others are over the mean of the compute nodes: what the node sends that sends most, least and rows; what the node
receives that receives most rows; and the busiest one of an exchange of rows, now and if a row that several nodes need
were sent to one of them, which forwards it: a bound, as if the nodes that forward were chosen ideally.
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
COLUMNS += ["most sent, least", "most sent, rows", "most received", "busiest", "forwarding"]


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
        offsets = file.read("clusters/offsets", dtype=np.int64)

        def inward(halo, between=None):
            every = np.ones(n, bool)
            return Counter(file, cluster_to_rank, ranks, halo, between).halo(every, every)[0]

        of_ranks = [inward(halo) for halo in ("rows", "least")]
        for per_node in groups:
            crossing = [
                each.rows[(each.receiver - each.offset) % ranks // per_node != each.receiver // per_node].sum() / n
                for each in of_ranks
            ]
            counts = [inward(halo, Nodes(ranks, per_node)) for halo in ("rows", "least")]
            nodes = [each.rows.sum() / n for each in counts]
            mean = max(1, counts[0].sent.mean())
            sent, received = (each.max() / mean for each in (counts[0].sent, counts[0].received))
            once = sent_once(file, np.repeat(cluster_to_rank, np.diff(offsets)), per_node).max() / mean
            least = counts[1].sent.max() / max(1, counts[1].sent.mean())
            yield [
                *(Path(graph).stem, ranks, per_node, *crossing, *nodes, nodes[1] / max(1 / n, crossing[1])),
                *(least, sent, received, max(sent, received), max(1, received, once)),
            ]


def sent_once(file, rank_of, per_node):
    """int64 (nodes,): the rows of each compute node that others need, each once. rank_of: (n,) in the file's order."""
    node = rank_of // per_node
    indptr, indices = file.read("topology/indptr", dtype=np.int64), file.read("topology/indices")
    away = np.repeat(node, np.diff(indptr)) != node[indices]
    return np.bincount(node[np.unique(indices[away])], minlength=node.max() + 1)


if __name__ == "__main__":
    sys.exit(main())
