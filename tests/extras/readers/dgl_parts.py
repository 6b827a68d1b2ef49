"""Facts of dgl-parts.tgz and dgl-graphbolt.tgz, folders that DGL 2.1.0 itself partitioned.

The first feature of a node is its number before the partitioning, and the weight of edge e is e + 1. The function
`ends` returns its ends. The folder one/ has one type, and several/ has papers and authors, edges by
destination. The folders graphbolt-one/ and graphbolt-several/ have no graph.dgl; the first has neither ids nor data of
edges. The folder graphstorm/ has the names and files that GraphStorm's documentation shows. The program
that made them is in the repository's history, in this file.
"""

import tarfile
from pathlib import Path

import numpy as np

ARCHIVE, GRAPHBOLT = (Path(__file__).with_name(f"dgl-{name}.tgz") for name in ("parts", "graphbolt"))
NODES, EDGES, PAPERS, AUTHORS = 24, 60, 14, 9


def ends(edge, sources, destinations):
    """The ends of edges before the partitioning."""
    return (5 * edge + 1) % sources, (3 * edge * edge + edge) % destinations


def unpacked(folder, *archives):
    """The folder with the contents of these archives."""
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    return folder


def edges_of(file):
    """The rows of the edges' sources and destinations in a graph file: (2, E)."""
    indptr, src = file.read("topology/indptr"), file.read("topology/indices")
    return np.stack([src, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))])


def assert_same_edges(found, expected):
    """Of ends (2, E), in any order."""
    found, expected = np.stack(found), np.stack(expected)
    np.testing.assert_array_equal(found[:, np.lexsort(found)], expected[:, np.lexsort(expected)])
