"""The graph that is split, and its parts, in files: symmetric, without self loops and parallel edges.

Rows are read in blocks of whole rows, so that parallel edges, which stand side by side, are in one block.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcgnn.graphfile.ranges import edge_rows, row_blocks
from hpcgnn.graphfile.schema import Edges
from partition_tools.graph.counts import blocks
from partition_tools.graph.edges import index_dtype
from partition_tools.out_of_core.sorting import chunk_records, in_order
from partition_tools.partitioners.weights import edge_weights, weigh_graph
from partition_tools.workspace.scratch import Scratch

#: Edges of a block of rows, or one row where a row has more.
BLOCK = 1 << 23


@dataclass
class Pattern:
    """CSR rows of a part of a graph, whose columns are in a file of `scratch`.

    name: of its files. nodes: int64 (m,), the nodes of the whole graph that it has. indptr: int64 (m + 1,). weights,
    pull: of its nodes, as in `partitioners.weights.Weighed`.
    """

    scratch: Scratch
    name: str
    nodes: np.ndarray
    indptr: np.ndarray
    weights: np.ndarray
    pull: np.ndarray | None

    @property
    def num_entries(self) -> int:
        """Edges of the part, each in both directions."""
        return int(self.indptr[-1])

    @property
    def indices(self) -> np.ndarray:
        """int (nnz,): the columns, numbers of nodes within the part, a mapped file."""
        return self.scratch.load(f"{self.name}.indices")

    @property
    def degrees(self) -> np.ndarray:
        """int64 (m,): neighbours of each node within the part."""
        return np.diff(self.indptr)

    def blocks(self) -> Iterator[np.ndarray]:
        """The indices, block by block."""
        return blocks(self.indices, BLOCK)

    def edge_weights(self) -> Iterator[np.ndarray] | None:
        """Weights uint8 of the edges in the order of the indices, block by block, or None for ones."""
        if self.pull is None:
            return None
        return (weights for _, weights in edge_weights(self.pull, self.indptr, self.blocks()))

    def forget(self) -> None:
        """Give the space of the edges back."""
        self.scratch.forget(f"{self.name}.indices")


def numbers(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """The place of each node among `nodes`, int (n,); anything for others. nodes: int64 (m,), rising."""
    number = np.zeros(num_nodes, index_dtype(num_nodes))
    number[nodes] = np.arange(len(nodes))
    return number


def _entries(edges: Edges, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) int64 of the edges of the rows first … end."""
    start, stop = int(edges.indptr[first]), int(edges.indptr[end])
    return edge_rows(edges.indptr, start, stop), np.asarray(edges.indices[start:stop]).astype(np.int64)


def whole_pattern(edges: Edges, edges_out: Edges | None, scratch: Scratch) -> Pattern:
    """The `Pattern` of a graph's part in a split (`partitioners.weights`). edges, edges_out: see
    `GraphData`; indices may be anything that slices. Memory: 40 bytes per node, and blocks of edges.
    """
    n = len(edges.indptr) - 1
    both = edges.indptr if edges_out is None else edges.indptr + edges_out.indptr
    weighed = weigh_graph(edges, edges_out)
    number = None if len(weighed.nodes) == n else numbers(weighed.nodes, n)

    def block(rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        row, column = _entries(edges, *rows)
        apart = row != column
        if edges_out is None:
            apart[1:] &= (column[1:] != column[:-1]) | (row[1:] != row[:-1])
            row, column = row[apart], column[apart]
        else:
            other_row, other_column = _entries(edges_out, *rows)
            other = other_row != other_column
            key = np.concatenate([row[apart] * n + column[apart], other_row[other] * n + other_column[other]])
            row, column = np.divmod(np.unique(key), n)
        first = rows[0]
        counted = row - first
        if weighed.hubs is not None:
            kept = ~(weighed.hubs[row] & weighed.hubs[column])
            counted, column = counted[kept], column[kept]
        if number is not None:
            column = number[column]
        return column.astype(index_dtype(n)), np.bincount(counted, minlength=rows[1] - first)

    total, counts = int(both[-1]), np.zeros(n + 1, np.int64)
    with (
        scratch.reporter.bar(total, f"reading {total:,} edges", "edges") as advance,
        scratch.appending("whole.indices", index_dtype(n)) as append,
    ):
        blocks = list(row_blocks(both, chunk_records(scratch.memory, BLOCK, total)))
        for (first, end), (columns, found) in zip(blocks, in_order(block, blocks), strict=True):
            append(columns)
            counts[first + 1 : end + 1] = found
            advance(int(both[end] - both[first]))
    indptr = np.concatenate([[0], np.cumsum(counts[weighed.nodes + 1])])
    return Pattern(scratch, "whole", weighed.nodes, indptr, weighed.weights, weighed.pull)


def parts_of(whole: Pattern, side: np.ndarray, num_parts: int) -> list[Pattern]:
    """The `Pattern` of each part: its nodes, in their old order, and the edges between them.

    side: the part of each node, int (m,). Memory: 25 bytes per node, and blocks of edges.
    """
    scratch, side = whole.scratch, side.astype(np.uint8)
    order = np.argsort(side, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(side, minlength=num_parts))])
    number = np.empty(len(side), index_dtype(len(side)))
    number[order] = np.arange(len(side)) - np.repeat(starts[:-1], np.diff(starts))
    names = [f"{whole.name}.{part}" for part in range(num_parts)]

    def block(rows: tuple[int, int]) -> tuple[list[np.ndarray], np.ndarray]:
        first, end = rows
        start, stop = int(whole.indptr[first]), int(whole.indptr[end])
        columns = np.asarray(indices[start:stop])
        sides = np.repeat(side[first:end], np.diff(whole.indptr[first : end + 1]))
        inside = side[columns] == sides
        counts = np.diff(np.concatenate([[0], np.cumsum(inside)])[whole.indptr[first : end + 1] - start])
        columns, sides = number[columns[inside]], sides[inside]
        grouped = columns[np.argsort(sides, kind="stable")]
        return np.split(grouped, np.cumsum(np.bincount(sides, minlength=num_parts))[:-1]), counts

    counts, indices, total = np.zeros(len(side), np.int64), whole.indices, whole.num_entries
    with (
        contextlib.ExitStack() as files,
        scratch.reporter.bar(total, f"dividing {total:,} edges", "edges") as advance,
    ):
        adding = [files.enter_context(scratch.appending(f"{name}.indices", number.dtype)) for name in names]
        blocks = list(row_blocks(whole.indptr, chunk_records(scratch.memory, BLOCK, total)))
        for (first, end), (columns, found) in zip(blocks, in_order(block, blocks), strict=True):
            for append, part in zip(adding, columns, strict=True):
                append(part)
            counts[first:end] = found
            advance(int(whole.indptr[end] - whole.indptr[first]))
    parts = []
    for name, (start, stop) in zip(names, itertools.pairwise(starts), strict=True):
        there = order[start:stop]
        indptr = np.concatenate([[0], np.cumsum(counts[there])])
        pull = None if whole.pull is None else whole.pull[there]
        parts.append(Pattern(scratch, name, whole.nodes[there], indptr, whole.weights[there], pull))
    return parts
