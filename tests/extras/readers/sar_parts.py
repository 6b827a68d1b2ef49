"""Facts of dgl-sar.tgz: folders that DGL 2.1.0 partitioned by the steps of SAR's examples (github.com/IntelLabs/SAR).

The folder arxiv/ has the steps of examples/partition_arxiv_products.py, and mag/ has the steps of
examples/partition_mag.py. Their graphs have OGB's shapes: mag/ has `year`, and `reltype` of edges, which OGB's files
bring. The folder cora/ has the steps of examples/partition_graph.py for a data set of DGL. The first feature of a node
is its number before the partitioning. The program that made them is in the repository's history, in this file.
"""

from pathlib import Path

import numpy as np

ARCHIVE = Path(__file__).with_name("dgl-sar.tgz")
NODES, EDGES = 30, 70
MAG = {"author": 9, "field_of_study": 6, "institution": 4, "paper": 12}
RELATIONS = {
    ("author", "affiliated_with", "institution"): 10,
    ("author", "writes", "paper"): 18,
    ("paper", "cites", "paper"): 20,
    ("paper", "has_topic", "field_of_study"): 14,
}


def ends(relation, count, sources, destinations):
    """The ends of a relation's edges before the partitioning. relation: its number."""
    edge = np.arange(count)
    return (7 * edge + relation) % sources, (3 * edge * edge + edge // sources + relation) % destinations


def bidirected():
    """The edges of the graphs of one type, without repetitions, both directions and a loop at each node: (2, E)."""
    src, dst = ends(1, EDGES, NODES, NODES)
    loops = np.arange(NODES)
    return np.unique(np.stack([np.r_[src, dst, loops], np.r_[dst, src, loops]]), axis=1)
