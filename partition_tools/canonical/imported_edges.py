"""The edges of a raw graph on their way into the file: checked, then in canonical order, whether they fit in memory or
not.

Edges are sorted by (destination, source, type, weight, row of features) in runs that are merged. Fingerprints of the
edges and of their reverses show whether the graph is its own transpose. So only graphs that need it are sorted by
source. Memory: the scratch directory's limit, and 17 bytes per node.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.schema import Edges, RowReader, count_types
from partition_tools.canonical.precision import PrecisionLoss
from partition_tools.canonical.typed import REVERSED, canonical_types
from partition_tools.graph.edges import BLOCK, check_endpoints, firsts, merged_parallel
from partition_tools.graph.raw import DataError, RawGraph
from partition_tools.out_of_core.csr import CARRIED, CsrPiece, csr_piece, edge_slice, form_runs, merged_csr, resorted
from partition_tools.out_of_core.records import Records, joined, keys_of
from partition_tools.out_of_core.sorting import Runs
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

if TYPE_CHECKING:
    from partition_tools.canonical.canonical import ImportOptions


def imported_edges(
    raw: RawGraph, options: "ImportOptions", names: Sequence[str], scratch: Scratch
) -> tuple[Edges, Edges | None, int, list[str]]:
    """(edges, edges_out, number of self loops, names of the types of edges), of the edges taken out of `raw`.

    edges_out is None where the graph is its own transpose. Indices, weights and types are mapped files of `scratch`.
    With `undirected` an input that is not symmetric becomes the union of its edges and their reverses, and parallel
    edges are merged; a symmetric one stays, duplicates included.

    Args:
        names: names of the source's types, or empty.

    Raises:
        GraphError: names the first faulty edge.
    """
    if options.add_reverse and options.undirected:
        raise ConfigError("--undirected gives an edge and its reverse one type, edges.add_reverse two; choose one")
    source, n = _Source(raw, options, names, scratch.reporter), raw.num_nodes

    def checked(records: Records) -> CsrPiece:
        if options.drop_duplicates:
            records = records.take(firsts(records.key, records.kind))
        return csr_piece(records, n, with_prints=True)

    runs = Runs(scratch, "edges", source.count, by_weight=True)
    _form(runs, source)
    edges, loops, symmetric = merged_csr("canonical", runs, n, checked)
    edges_out = None
    if not symmetric and options.undirected:
        edges, loops = _symmetrized(edges, scratch)
    elif not symmetric:
        edges_out = resorted(replace(edges, row=None), lambda a, b: b * n + a, "transposed", scratch, " by source")
    raw.drop_edges()
    known = [*names, *(map(REVERSED.format, names) if options.add_reverse else ())]
    if known and count_types(edges.type) > len(known):
        known.append("self loop")
    return edges, edges_out, loops, known


class _Source:
    """The edges of a raw graph, as many at a time as are asked for. Several threads ask."""

    def __init__(self, raw: RawGraph, options: "ImportOptions", names: Sequence[str], reporter: Reporter) -> None:
        self.raw, self.options, self.names = raw, options, names
        self.count, self.num_nodes = raw.src.shape[0], raw.num_nodes
        if raw.src.shape != raw.dst.shape or len(raw.src.shape) != 1:
            raise GraphError(
                f"sources and destinations must be two vectors of one length, got shapes {raw.src.shape} and "
                f"{raw.dst.shape}"
            )
        self.weight = None if options.drop_weights else _of_edges(raw.weight, self.count, "edge weight")
        self.kind = _of_edges(raw.type, self.count, "edge type")
        if self.weight is not None and self.weight.dtype.kind not in "iufb":
            raise GraphError(f"edge weights must be numbers, got {self.weight.dtype}")
        if self.kind is None and names:
            raise GraphError("there are names of edge types but no edge types")
        if self.kind is None and options.add_reverse:
            raise GraphError("edges.add_reverse is for graphs with edge types; for others use --undirected")
        if raw.edge_features is not None and options.self_loops == "add":
            raise GraphError(
                "edges.self_loops=add: the loops would have no edge features; leave it out; training adds loops with "
                "the mean of the node's other edges (hpcgnn train --self-loops add)"
            )
        parts = [(start, min(start + BLOCK, self.count)) for start in range(0, self.count, BLOCK)]
        if self.weight is not None and self.weight.dtype != np.float32:
            loss = PrecisionLoss("weights of edges", "edge", 1, np.float32)
            for start, stop in parts:
                before = np.asarray(self.weight[start:stop])[:, None]
                with np.errstate(over="ignore"):
                    loss.add(before, before.astype(np.float32))
            loss.tell(reporter)
        counts = () if self.kind is None else (count_types(self.kinds(*part), names) for part in parts)
        self.num_types = max(counts, default=0)

    def kinds(self, start: int, stop: int) -> np.ndarray | None:
        """The types of the edges start … stop, checked: int32, or None."""
        kinds = None if self.kind is None else self.kind[start:stop]
        return None if kinds is None else canonical_types(kinds, stop - start, "edge", self.names, start)

    def ends(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations of the edges start … stop."""
        return np.asarray(self.raw.src[start:stop]), np.asarray(self.raw.dst[start:stop])

    def records(self, start: int, stop: int) -> Records:
        """The edges start … stop, checked, and their reverses if asked for."""
        n, kinds = self.num_nodes, self.kinds(start, stop)
        weight = None if self.weight is None else np.asarray(self.weight[start:stop], np.float32)
        if weight is not None and not np.isfinite(weight).all():
            raise DataError(start + int(np.argmin(np.isfinite(weight))), "has a weight that is not finite", item="edge")
        src, dst = self.ends(start, stop)
        check_endpoints(src, dst, self.num_nodes, start)
        keys = keys_of(0, len(src), lambda a, b: dst[a:b].astype(np.int64) * n + src[a:b].astype(np.int64))
        records = Records(keys, kinds, weight, None if self.raw.edge_features is None else np.arange(start, stop))
        if self.options.self_loops == "remove":
            records = records.take(src != dst)
        if self.options.add_reverse and records.kind is not None:
            to, of = np.divmod(records.key, n)
            back = replace(records, key=of * n + to, kind=records.kind + np.int32(self.num_types))
            records = joined([records, back])
        return records

    def missing_loops(self, size: int) -> Records:
        """A self loop for each node that has none: weight 1, and a type after all others."""
        without = np.ones(self.num_nodes, bool)
        for start in range(0, self.count, size):
            src, dst = self.ends(start, min(start + size, self.count))
            without[src[src == dst]] = False
        nodes = np.flatnonzero(without)
        last = self.num_types * (2 if self.options.add_reverse else 1)
        kind = None if self.kind is None else np.full(len(nodes), last, np.int32)
        weight = None if self.weight is None else np.ones(len(nodes), np.float32)
        return Records(nodes * np.int64(self.num_nodes) + nodes, kind, weight)


def _of_edges(values: RowReader | None, count: int, what: str) -> RowReader | None:
    """One value for each edge, (E,), of an array of shape (E,) or (E, 1). GraphError for any other shape."""
    if values is None or tuple(values.shape) == (count,):
        return values
    if tuple(values.shape) == (count, 1) and isinstance(values, np.ndarray):
        return values[:, 0]
    raise GraphError(f"expected one {what} for each of {count} edges, got shape {tuple(values.shape)}")


def _form(runs: Runs, source: _Source) -> None:
    """Sorted runs of the edges of a source, with self loops as asked for."""
    size = max(1, runs.size // (2 if source.options.add_reverse else 1))

    def make(index: int) -> Records:
        return source.records(index * size, min((index + 1) * size, source.count))

    with runs.scratch.reporter.bar(source.count, f"sorting {source.count:,} edges", "edges") as advance:
        runs.form(make, max(1, -(-source.count // size)), advance)  # an empty run says which attributes there are
    if source.options.self_loops == "add":
        runs.form(lambda _: source.missing_loops(size), 1)


def _symmetrized(edges: Edges, scratch: Scratch) -> tuple[Edges, int]:
    """The union of the edges and their reverses, parallel edges (same ends, same type) merged; its self loops.

    A merged edge has the mean weight of its edges in either direction, computed once for both of its directions. So the
    result is its own transpose, bit for bit. It has the features of the first of its edges in the input. Self loops
    stay single.
    """
    n, (runs, ends) = len(edges.indptr) - 1, (Runs(scratch, name, len(edges.indices)) for name in ("both", "ends"))
    form_runs(ends, edges, lambda a, b: np.minimum(a, b) * n + np.maximum(a, b), "pairing")

    def one_of_each(found: Records) -> CsrPiece:
        return csr_piece(Records(*merged_parallel(found.key, found.kind, found.weight, found.row)), n)

    pairs = merged_csr("pairs", ends, n, one_of_each)[0]
    total, size = len(pairs.indices), max(1, runs.size // 2)

    def both(index: int) -> Records:
        one = edge_slice(pairs, index * size, min((index + 1) * size, total), lambda low, high: low * n + high)
        low, high = np.divmod(one.key, n)
        back = one.take(low != high)
        back.key = high[low != high] * n + low[low != high]
        return joined([one, back])

    with scratch.reporter.bar(total, f"sorting {total:,} undirected edges", "edges") as advance:
        runs.form(both, max(1, -(-total // size)), lambda records: advance(records // 2))
    for part in ("indices", *CARRIED):
        scratch.forget(f"pairs.{part}")
    merged, loops, _ = merged_csr("symmetrized", runs, n)
    return merged, loops
