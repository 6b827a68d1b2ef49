"""ParHIP's binary graph format, the one that KaMinPar reads, written block after block.

A file starts with three 64-bit numbers (version bits, nodes, directed edges). Then comes one offset for each node and
one for the end, in bytes from the start of the file. The neighbours of node 0, of node 1 and so on follow, then the
weights of nodes and edges. The version bits mark missing and narrow parts (KaHIP v3, User Guide, section 3). The
adjacency comes from an iterator, so a graph that does not fit memory can be written.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hpcgnn.errors import GraphError

NO_EDGE_WEIGHTS, NO_NODE_WEIGHTS, NARROW_NODES, NARROW_NODE_WEIGHTS, NARROW_EDGE_WEIGHTS = 1, 2, 8, 16, 32
HEADING = 3
_NARROW = 1 << 32
_ROWS = 1 << 20


def write_parhip(
    path: str | Path,
    num_nodes: int,
    num_neighbours: np.ndarray,
    blocks: Iterable[np.ndarray],
    vertex_weights: np.ndarray | None = None,
    edge_weights: Iterable[np.ndarray] | None = None,
) -> None:
    """Write an undirected graph.

    The graph must be symmetric, without self loops and parallel edges; this is not checked. Memory: one block, and rows
    by the million.

    Args:
        num_neighbours: int64 (n,), the degree of each node.
        blocks: the neighbours, int, row after row, cut anywhere; as many as num_neighbours sums to.
        vertex_weights: positive int (n,), or None for ones.
        edge_weights: positive int below 2^32, in blocks in the order of the neighbours, read after them; None for ones.

    Raises:
        GraphError, OSError: counts do not agree, or the file cannot be written.
    """
    num_neighbours = np.asarray(num_neighbours)
    if len(num_neighbours) != num_nodes or (vertex_weights is not None and len(vertex_weights) != num_nodes):
        raise GraphError(
            f"expected a number of neighbours and a weight for each of {num_nodes} nodes, got "
            f"{len(num_neighbours)} and {'none' if vertex_weights is None else len(vertex_weights)}"
        )
    expected = int(num_neighbours.sum(dtype=np.int64))
    narrow = num_nodes < _NARROW
    width: type = np.uint32 if narrow else np.uint64
    heavy = vertex_weights is not None and num_nodes and int(vertex_weights.max()) >= _NARROW
    version = (NARROW_NODES if narrow else 0) | (0 if heavy else NARROW_NODE_WEIGHTS) | NARROW_EDGE_WEIGHTS
    version |= NO_NODE_WEIGHTS if vertex_weights is None else 0
    version |= NO_EDGE_WEIGHTS if edge_weights is None else 0
    with open(path, "wb") as file:
        np.array([version, num_nodes, expected], np.uint64).tofile(file)
        at = np.uint64(8 * (HEADING + num_nodes + 1))
        for start in range(0, num_nodes, _ROWS):
            bytes_of_rows = num_neighbours[start : start + _ROWS].astype(np.uint64) * np.uint64(
                np.dtype(width).itemsize
            )
            ends = at + np.cumsum(bytes_of_rows, dtype=np.uint64)
            np.concatenate([[at], ends[:-1]]).astype(np.uint64).tofile(file)
            at = ends[-1]
        np.array([at], np.uint64).tofile(file)
        _write_blocks(file, blocks, width, expected, "neighbours")
        if vertex_weights is not None:
            for start in range(0, num_nodes, _ROWS):
                vertex_weights[start : start + _ROWS].astype(np.uint64 if heavy else np.uint32).tofile(file)
        if edge_weights is not None:
            _write_blocks(file, edge_weights, np.uint32, expected, "edge weights")


def _write_blocks(file: BinaryIO, blocks: Iterable[np.ndarray], dtype: type, expected: int, what: str) -> None:
    written = 0
    for block in blocks:
        np.asarray(block).astype(dtype).tofile(file)
        written += len(block)
    if written != expected:
        raise GraphError(f"expected {expected} {what}, got {written}")


def whole_nodes(path: str | Path) -> int:
    """The number of nodes of a file. Raises GraphError if its length does not agree with its heading."""
    heading = np.fromfile(path, np.uint64, HEADING)
    if len(heading) == HEADING:
        version, nodes, edges = (int(number) for number in heading)
        size = 8 * (HEADING + nodes + 1) + edges * (4 if version & NARROW_NODES else 8)
        if not version & NO_NODE_WEIGHTS:
            size += nodes * (4 if version & NARROW_NODE_WEIGHTS else 8)
        if not version & NO_EDGE_WEIGHTS:
            size += edges * (4 if version & NARROW_EDGE_WEIGHTS else 8)
        if size == Path(path).stat().st_size:
            return nodes
    raise GraphError(f"{path} is not a whole ParHIP file; write it again")
