"""The canonical edges of a graph, whether they fit in memory or not.

Edges are sorted by (destination, source, type, weight, row of features) in runs that are merged (sorting.py).
Fingerprints of the edges and of their reverses show whether the graph is its own transpose. So only graphs that need it
are sorted by source. Memory: the scratch directory's limit, and 17 bytes per node.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hpcgnn.graphfile.schema import Edges
from partition_tools.graph.edges import check_endpoints, firsts, merged_parallel
from partition_tools.out_of_core.csr import CsrPiece, WrittenCsr, csr_piece, edge_slice, write_csr
from partition_tools.out_of_core.records import Records, joined
from partition_tools.out_of_core.sorting import Runs
from partition_tools.workspace.scratch import Scratch


@dataclass
class EdgeChunks:
    """The checked edges of a graph, in chunks of any length.

    Attributes:
        chunk: (start, stop) -> (src, dst, kind or None, weight or None) of the edges start … stop: int, int, int32,
            float32. Several threads call it.
        num_types: number of kinds.
        add_reverse: whether each edge gets a reverse, of kind num_types + its own.
        featured: whether edges have rows of features; edge k has row k.
    """

    count: int
    num_nodes: int
    chunk: Callable[[int, int], tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]]
    typed: bool = False
    weighted: bool = False
    num_types: int = 0
    add_reverse: bool = False
    featured: bool = False


def sorted_edges(
    source: EdgeChunks,
    scratch: Scratch,
    undirected: bool = False,
    self_loops: str = "keep",
    drop_duplicates: bool = False,
) -> tuple[Edges, Edges | None, int]:
    """(edges, edges_out or None, number of self loops); None where the graph is its own transpose.

    The indices, weights and types are mapped files of the scratch directory.

    Args:
        self_loops: "keep", "remove", or "add" (one for each node without, of weight 1 and a type after all others).
        undirected: an input that is not symmetric becomes the union of its edges and their reverses, and parallel
            edges are merged; a symmetric one stays, duplicates included.

    Raises:
        GraphError: ends outside the nodes.
    """
    n = source.num_nodes

    def checked(records: Records) -> CsrPiece:
        if drop_duplicates:
            records = records.take(firsts(records.key, records.kind))
        return csr_piece(records, n, with_prints=True)

    runs = Runs(scratch, "edges", by_weight=True)
    if not scratch.done("canonical.facts"):
        _form(runs, source, self_loops)
    written = _write("canonical", runs, checked, n)
    if written.symmetric:
        return written.edges, None, written.loops
    if not undirected:
        turned = resorted(replace(written.edges, row=None), lambda a, b: b * n + a, "transposed", scratch, " by source")
        return written.edges, turned, written.loops
    written = _symmetrized(written.edges, scratch)
    return written.edges, None, written.loops


def _write(name: str, runs: Runs, work: Callable[[Records], CsrPiece], num_nodes: int) -> WrittenCsr:
    """Merge runs to a CSR matrix, and remove them."""

    def pieces() -> Iterator[CsrPiece]:
        total = len(runs)
        with runs.scratch.reporter.bar(total, f"merging {total:,} edges", "edges") as advance:
            yield from runs.merged(work, advance)

    written = write_csr(runs.scratch, name, pieces, num_nodes)
    runs.remove()
    return written


def _form(runs: Runs, source: EdgeChunks, self_loops: str) -> None:
    """Sorted runs of the edges of a source, with self loops as asked for."""
    n = source.num_nodes
    size = max(1, runs.size // (2 if source.add_reverse else 1))
    chunks = max(1, -(-source.count // size))  # an empty run says which attributes there are

    def make(index: int) -> Records:
        start = index * size
        src, dst, kind, weight = source.chunk(start, min(start + size, source.count))
        check_endpoints(src, dst, n, start)
        src, dst = src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
        row = np.arange(start, start + len(src)) if source.featured else None
        records = Records(dst * np.int64(n) + src, kind, weight, row)
        if self_loops == "remove":
            kept = src != dst
            src, dst, records = src[kept], dst[kept], records.take(kept)
        if source.add_reverse:
            assert records.kind is not None, "reverses have types of their own"
            back = replace(records, key=src * np.int64(n) + dst, kind=records.kind + np.int32(source.num_types))
            records = joined([records, back])
        return records

    with runs.scratch.reporter.bar(source.count, f"sorting {source.count:,} edges", "edges") as advance:
        runs.form(make, chunks, advance)
    if self_loops == "add":
        runs.form(lambda _: _missing_loops(source, size), 1)


def _missing_loops(source: EdgeChunks, size: int) -> Records:
    """A self loop for each node that has none: weight 1, and a type after all others."""
    without = np.ones(source.num_nodes, bool)
    for start in range(0, source.count, size):
        src, dst, _, _ = source.chunk(start, min(start + size, source.count))
        without[src[src == dst]] = False
    nodes = np.flatnonzero(without)
    last = source.num_types * (2 if source.add_reverse else 1)
    kind = np.full(len(nodes), last, np.int32) if source.typed else None
    return Records(
        nodes * np.int64(source.num_nodes) + nodes, kind, np.ones(len(nodes), np.float32) if source.weighted else None
    )


def _by_chunks(
    runs: Runs,
    edges: Edges,
    key: Callable[[np.ndarray, np.ndarray], np.ndarray],
    what: str,
    how: str = "",
) -> None:
    """Sorted runs of edges under other keys: key(rows, columns) int64. `what` and `how` are words for the user."""
    total, size = len(edges.indices), runs.size

    def one(index: int) -> Records:
        return edge_slice(edges, index * size, min((index + 1) * size, total), key)

    with runs.scratch.reporter.bar(total, f"{what} {total:,} edges{how}", "edges") as advance:
        runs.form(one, max(1, -(-total // size)), advance)


def resorted(
    edges: Edges,
    key: Callable[[np.ndarray, np.ndarray], np.ndarray],
    name: str,
    scratch: Scratch,
    how: str = "",
) -> Edges:
    """The same edges in the order of other keys: key(rows, columns) int64, which are new row * nodes + new column.

    edges: indices, weights and types may be anything that slices. name: of the files in the scratch directory. how:
    words for the user.
    """
    n = len(edges.indptr) - 1
    runs = Runs(scratch, f"{name}.runs", by_weight=True)
    if not scratch.done(f"{name}.facts"):
        _by_chunks(runs, edges, key, "sorting", how)
    return _write(name, runs, lambda records: csr_piece(records, n), n).edges


def _symmetrized(edges: Edges, scratch: Scratch) -> WrittenCsr:
    """The union of the edges and their reverses, parallel edges (same ends, same type) merged.

    A merged edge has the mean weight of its edges in either direction, computed once for both of its directions. So the
    result is its own transpose, bit for bit. It has the features of the first of its edges in the input. Self loops
    stay single.
    """
    n = len(edges.indptr) - 1
    if scratch.done("symmetrized.facts"):
        return write_csr(scratch, "symmetrized", lambda: iter(()), n)
    runs = Runs(scratch, "ends")
    if not scratch.done("pairs.facts"):
        _by_chunks(runs, edges, lambda a, b: np.minimum(a, b) * n + np.maximum(a, b), "pairing")
    pairs = _write("pairs", runs, lambda records: csr_piece(_one_of_each(records), n), n).edges
    runs = Runs(scratch, "both")
    total, size = len(pairs.indices), max(1, runs.size // 2)

    def both(index: int) -> Records:
        one = edge_slice(pairs, index * size, min((index + 1) * size, total), lambda low, high: low * n + high)
        low, high = np.divmod(one.key, n)
        back = one.take(low != high)
        back.key = high[low != high] * n + low[low != high]
        return joined([one, back])

    with scratch.reporter.bar(total, f"sorting {total:,} undirected edges", "edges") as advance:
        runs.form(both, max(1, -(-total // size)), lambda records: advance(records // 2))
    written = _write("symmetrized", runs, lambda records: csr_piece(records, n), n)
    for part in ("indices", "indptr", "weight", "kind", "row", "facts"):
        scratch.forget(f"pairs.{part}")
    return written


def _one_of_each(records: Records) -> Records:
    return Records(*merged_parallel(records.key, records.kind, records.weight, records.row))
