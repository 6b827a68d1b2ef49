"""CSR matrices that are written as their sorted edges come, and read again in chunks of edges."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.graphfile.schema import Edges
from partition_tools.graph.edges import firsts, index_dtype
from partition_tools.out_of_core.records import CACHED, Records, keys_of
from partition_tools.out_of_core.sorting import COLUMNS, Runs
from partition_tools.workspace.scratch import Scratch

_STEPS = np.array([[30, 0xBF58476D1CE4E5B9], [27, 0x94D049BB133111EB]], np.uint64)
# What an edge carries, in the order of the fields of `Edges`.
CARRIED = {part: COLUMNS[part] for part in ("weight", "kind", "row")}


@dataclass
class CsrPiece:
    """Consecutive edges of a CSR matrix. counts: rows, ascending, and their numbers of edges; a row with edges in two
    parts is in both. loops: number of self loops. prints: uint64 (2,), a sum of `fingerprint`.
    """

    records: Records
    indices: np.ndarray
    counts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    loops: int = 0
    prints: np.ndarray = field(default_factory=lambda: np.zeros(2, np.uint64))


def csr_piece(records: Records, num_nodes: int, with_prints: bool = False) -> CsrPiece:
    """The `CsrPiece` of sorted records, whose keys are row * num_nodes + column."""
    piece = CsrPiece(records, np.empty(len(records), index_dtype(num_nodes)))
    for start in range(0, len(records), CACHED):
        some = records.take(slice(start, start + CACHED))
        rows = some.key // num_nodes
        columns = some.key - rows * num_nodes
        piece.indices[start : start + CACHED] = columns
        starts = np.flatnonzero(firsts(rows, None))
        piece.counts.append((rows[starts], np.diff(starts, append=len(rows))))
        piece.loops += int(np.count_nonzero(rows == columns))
        if with_prints:
            piece.prints += fingerprint(some, rows, columns, num_nodes)
    return piece


def fingerprint(records: Records, rows: np.ndarray, columns: np.ndarray, num_nodes: int) -> np.ndarray:
    """uint64 (2,): a sum over the edges that does not depend on their order, in the manner of a multiset hash.

    An edge and its reverse, alike but for their direction, have one hash, with opposite signs. So a graph whose sum is
    0 is its own transpose but for a chance of about 2^-127.
    """
    mixed = _mixed((np.minimum(rows, columns) * num_nodes + np.maximum(rows, columns)).view(np.uint64))
    if records.kind is not None:
        mixed = _mixed(mixed + records.kind.astype(np.uint64))
    if records.weight is not None:
        mixed = _mixed(mixed + (records.weight + np.float32(0)).view(np.uint32))  # -0 is 0
    sign = np.sign(rows - columns).view(np.uint64)
    return np.array([np.dot(sign, mixed), np.dot(sign, mixed * (mixed >> np.uint64(32) | np.uint64(1)))])


def _mixed(values: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit numbers that spreads every bit (splitmix64's finalizer; Steele et al., OOPSLA 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _STEPS:
        values ^= values >> shift
        values *= factor
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
    indptr, loops, prints = np.zeros(num_nodes + 1, np.int64), 0, np.zeros(2, np.uint64)
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
            for rows, counts in piece.counts:
                indptr[rows + 1] += counts
            loops += piece.loops
            prints += piece.prints
    runs.remove()
    carried = (scratch.load(f"{name}.{part}") if part in there else None for part in CARRIED)
    edges = Edges(np.cumsum(indptr, out=indptr), scratch.load(f"{name}.indices"), *carried)
    return edges, loops, not prints.any()


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
