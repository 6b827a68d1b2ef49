"""CSR matrices that are written as their sorted edges come, and read again in chunks of edges."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.graphfile.schema import Edges
from partition_tools.graph.edges import index_dtype
from partition_tools.out_of_core.records import CACHED, Records, keys_of
from partition_tools.out_of_core.sorting import COLUMNS, Runs
from partition_tools.workspace.scratch import Scratch

_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15], np.uint64)
# What an edge carries, in the order of the fields of `Edges`.
CARRIED = {part: COLUMNS[part] for part in ("weight", "kind", "row")}


@dataclass
class CsrPiece:
    """Consecutive edges of a CSR matrix. first_row: row of the first edge. counts: int64, edges of it and of each later
    row. loops: number of self loops. prints: uint64 (2, 2), see `fingerprint`, of the edges and of their reverses.
    """

    records: Records
    indices: np.ndarray
    first_row: int
    counts: np.ndarray
    loops: int
    prints: np.ndarray = field(default_factory=lambda: np.zeros((2, 2), np.uint64))


def csr_piece(records: Records, num_nodes: int, with_prints: bool = False) -> CsrPiece:
    """The `CsrPiece` of sorted records, whose keys are row * num_nodes + column."""
    rows, columns = np.divmod(records.key, num_nodes)
    first = int(rows[0]) if len(rows) else 0
    prints = np.zeros((2, 2), np.uint64)
    if with_prints:
        prints = np.stack([fingerprint(records, records.key), fingerprint(records, columns * num_nodes + rows)])
    loops = int(np.count_nonzero(rows == columns))
    rows -= first
    return CsrPiece(records, columns.astype(index_dtype(num_nodes)), first, np.bincount(rows), loops, prints)


def fingerprint(records: Records, key: np.ndarray) -> np.ndarray:
    """uint64 (2,): a sum over the edges that does not depend on their order, in the manner of a multiset hash.

    Two graphs with equal sums are equal but for a chance of about 2^-128. key: int64 (m,), in place of the records'.
    """
    total = np.zeros(2, np.uint64)
    for start in range(0, len(key), CACHED):
        there = slice(start, start + CACHED)
        mixed = _mixed(key[there].view(np.uint64))
        if records.kind is not None:
            mixed = _mixed(mixed + records.kind[there].astype(np.uint64))
        if records.weight is not None:
            mixed = _mixed(mixed + (records.weight[there] + np.float32(0)).view(np.uint32))  # -0 is 0
        again = mixed ^ (mixed >> np.uint64(29))
        again *= _MULTIPLIERS[1]
        again ^= again >> np.uint64(32)
        total += np.array([mixed.sum(dtype=np.uint64), again.sum(dtype=np.uint64)])
    return total


def _mixed(values: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit numbers that spreads every bit (splitmix64's finalizer; Steele et al., OOPSLA 2014)."""
    values = values + _MULTIPLIERS[2]
    values ^= values >> np.uint64(30)
    values *= _MULTIPLIERS[0]
    values ^= values >> np.uint64(27)
    values *= _MULTIPLIERS[1]
    values ^= values >> np.uint64(31)
    return values


def merged_csr(
    name: str, runs: Runs, num_nodes: int, work: Callable[[Records], CsrPiece] | None = None
) -> tuple[Edges, int, bool]:
    """(edges, number of self loops, whether the edges are their own reverses) of merged runs, which are then removed.

    name: of the files in the scratch directory, which the arrays of the edges are mapped from. work: a piece of the
    matrix from records with all edges of their rows and columns (None: `csr_piece`). Reverses are compared as far as it
    asks for fingerprints. Memory: 8 bytes per node.
    """
    scratch, make, total = runs.scratch, work or (lambda records: csr_piece(records, num_nodes)), len(runs)
    indptr, loops, prints = np.zeros(num_nodes + 1, np.int64), 0, np.zeros((2, 2), np.uint64)
    there: set[str] = set()
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(scratch.reporter.bar(total, f"merging {total:,} edges", "edges"))
        add_indices = stack.enter_context(scratch.appending(f"{name}.indices", index_dtype(num_nodes)))
        add = {part: stack.enter_context(scratch.appending(f"{name}.{part}", CARRIED[part])) for part in CARRIED}
        for piece in runs.merged(make, advance):
            add_indices(piece.indices)
            for part, append in add.items():
                values = getattr(piece.records, part)
                if values is not None:
                    append(values)
                    there.add(part)
            indptr[piece.first_row + 1 : piece.first_row + 1 + len(piece.counts)] += piece.counts
            loops += piece.loops
            prints += piece.prints
    runs.remove()
    carried = (scratch.load(f"{name}.{part}") if part in there else None for part in CARRIED)
    edges = Edges(np.cumsum(indptr, out=indptr), scratch.load(f"{name}.indices"), *carried)
    return edges, loops, bool(np.array_equal(prints[0], prints[1]))


Key = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""key(rows, columns) int64: a new row * nodes + a new column."""


def resorted(edges: Edges, key: Key, name: str, scratch: Scratch, how: str = "") -> Edges:
    """The same edges in the order of other keys.

    edges: indices, weights and types may be anything that slices. name: of the files in the scratch directory. how:
    words for the user.
    """
    runs = Runs(scratch, f"{name}.runs", len(edges.indices), by_weight=True)
    form_runs(runs, edges, key, "sorting", how)
    return merged_csr(name, runs, len(edges.indptr) - 1)[0]


def form_runs(runs: Runs, edges: Edges, key: Key, what: str, how: str = "") -> None:
    """Sorted runs of edges under other keys. what, how: words for the user."""
    total, size = len(edges.indices), runs.size

    def one(index: int) -> Records:
        return edge_slice(edges, index * size, min((index + 1) * size, total), key)

    with runs.scratch.reporter.bar(total, f"{what} {total:,} edges{how}", "edges") as advance:
        runs.form(one, max(1, -(-total // size)), advance)


def edge_slice(edges: Edges, start: int, stop: int, key: Key) -> Records:
    """The edges start … stop under keys of their own: key(rows, columns), all int64."""
    carried = (None if a is None else np.asarray(a[start:stop]) for a in (edges.type, edges.weight, edges.row))
    keys = keys_of(start, stop, lambda a, b: key(edge_rows(edges.indptr, a, b), edges.indices[a:b].astype(np.int64)))
    return Records(keys, *carried)
