"""ParHIP's binary graph format, the one that KaMinPar reads, written block after block.

A file starts with three 64-bit numbers (version bits, nodes, directed edges). Then comes one offset for each node and
one for the end, in bytes from the start of the file. The neighbours of node 0, of node 1 and so on follow, then the
weights of nodes and edges. The version bits mark missing and narrow parts (KaHIP v3, User Guide, section 3). The
adjacency comes from an iterator, so a graph that does not fit memory can be written.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

NO_EDGE_WEIGHTS, NARROW_NODES, NARROW_NODE_WEIGHTS, NARROW_EDGE_WEIGHTS = 1, 8, 16, 32
HEADING = 3
_NARROW = 1 << 32
_ROWS = 1 << 20


def write_parhip(
    path: Path,
    num_neighbours: np.ndarray,
    blocks: Iterable[np.ndarray],
    vertex_weights: np.ndarray,
    edge_weights: Iterable[np.ndarray] | None = None,
) -> None:
    """Write a symmetric graph without self loops and parallel edges. Memory: one block, and rows by the million.

    Args:
        num_neighbours: int64 (n,), the degree of each node.
        blocks: the neighbours, int, row after row, cut anywhere; as many as num_neighbours sums to.
        vertex_weights: positive int (n,).
        edge_weights: positive int below 2^32, in blocks in the order of the neighbours, read after them; None for ones.
    """
    num_nodes = len(num_neighbours)
    narrow, heavy = num_nodes < _NARROW, num_nodes and int(vertex_weights.max()) >= _NARROW
    width, of_nodes = np.uint32 if narrow else np.uint64, np.uint64 if heavy else np.uint32
    version = (NARROW_NODES if narrow else 0) | (0 if heavy else NARROW_NODE_WEIGHTS) | NARROW_EDGE_WEIGHTS
    version |= NO_EDGE_WEIGHTS if edge_weights is None else 0
    with open(path, "wb") as file:
        np.array([version, num_nodes, int(num_neighbours.sum(dtype=np.int64))], np.uint64).tofile(file)
        at = np.array([8 * (HEADING + num_nodes + 1)], np.uint64)
        at.tofile(file)
        for start in range(0, num_nodes, _ROWS):
            lengths = num_neighbours[start : start + _ROWS].astype(np.uint64) * np.uint64(np.dtype(width).itemsize)
            ends = at[-1] + np.cumsum(lengths, dtype=np.uint64)
            ends.tofile(file)
            at = ends
        for block in blocks:
            np.asarray(block).astype(width).tofile(file)
        for start in range(0, num_nodes, _ROWS):
            vertex_weights[start : start + _ROWS].astype(of_nodes).tofile(file)
        for block in edge_weights or ():
            np.asarray(block).astype(np.uint32).tofile(file)
