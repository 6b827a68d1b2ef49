"""The edges of a raw graph on their way into the file: checked, then brought into canonical order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.schema import Edges, Rows, count_types
from partition_tools.canonical.precision import PrecisionLoss
from partition_tools.canonical.typed import REVERSED, canonical_types
from partition_tools.graph.edges import BLOCK
from partition_tools.graph.raw import DataError, RawGraph
from partition_tools.out_of_core.edges import EdgeChunks, sorted_edges
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

if TYPE_CHECKING:
    from partition_tools.canonical.canonical import ImportOptions


def imported_edges(
    raw: RawGraph, options: "ImportOptions", names: list[str], scratch: Scratch
) -> tuple[Edges, Edges | None, int, list[str]]:
    """(edges, edges_out or None, number of self loops, names of the types of edges), of the edges taken out of `raw`.

    names: names of the source's types, or empty. The arrays are mapped files of `scratch`. Raises GraphError that names
    the first faulty edge.
    """
    if options.add_reverse and options.undirected:
        raise ConfigError("--undirected gives an edge and its reverse one type, edges.add_reverse two; choose one")
    source = _chunks(raw, options, names, scratch.reporter)
    edges, edges_out, loops = sorted_edges(
        source, scratch, options.undirected, options.self_loops, options.drop_duplicates
    )
    raw.drop_edges()
    if names and options.add_reverse:
        names = [*names, *map(REVERSED.format, names)]
    if names and count_types(edges.type) > len(names):
        names = [*names, "self loop"]
    return edges, edges_out, loops, names


def of_edges(values: Rows | None, count: int, what: str) -> Rows | None:
    """One value for each edge, (E,), of an array of shape (E,) or (E, 1). GraphError for any other shape."""
    if values is None or tuple(values.shape) == (count,):
        return values
    if tuple(values.shape) == (count, 1) and isinstance(values, np.ndarray):
        return values[:, 0]
    raise GraphError(f"expected one {what} for each of {count} edges, got shape {tuple(values.shape)}")


def _chunks(raw: RawGraph, options: "ImportOptions", names: Sequence[str], reporter: Reporter) -> EdgeChunks:
    """The edges of `raw` as many at a time as are asked for, checked but for their ends."""
    src, dst, weight, kind, featured = raw.src, raw.dst, raw.weight, raw.type, raw.edge_features is not None
    count, n = src.shape[0], raw.num_nodes
    if src.shape != dst.shape or len(src.shape) != 1:
        raise GraphError(
            f"sources and destinations must be two vectors of one length, got shapes {src.shape} and {dst.shape}"
        )
    weight, kind = of_edges(weight, count, "edge weight"), of_edges(kind, count, "edge type")
    if weight is not None and weight.dtype.kind not in "iufb":
        raise GraphError(f"edge weights must be numbers, got {weight.dtype}")
    if kind is None and names:
        raise GraphError("there are names of edge types but no edge types")
    if kind is None and options.add_reverse:
        raise GraphError("edges.add_reverse is for graphs with edge types; for others use --undirected")
    if featured and options.self_loops == "add":
        raise GraphError(
            "edges.self_loops=add: the loops would have no edge features; leave it out; training adds loops with the "
            "mean of the node's other edges (hpcgnn train --self-loops add)"
        )
    if options.drop_weights:
        weight = None

    def chunk(start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
        there = slice(start, stop)
        some = None if weight is None else np.asarray(weight[there], np.float32)
        if some is not None and not np.isfinite(some).all():
            edge = start + int(np.argmin(np.isfinite(some)))
            raise DataError(edge, "has a weight that is not finite", item="edge")
        kinds = None if kind is None else canonical_types(kind[there], stop - start, "edge", names, start)
        return np.asarray(src[there]), np.asarray(dst[there]), kinds, some

    if weight is not None and weight.dtype != np.float32:
        loss = PrecisionLoss("weights of edges", "edge", 1, np.float32)
        for start, stop in _parts(count):
            before = np.asarray(weight[start:stop])[:, None]
            with np.errstate(over="ignore"):
                loss.add(before, before.astype(np.float32))
        loss.tell(reporter)
    num_types = 0 if kind is None else max((count_types(chunk(*part)[2], names) for part in _parts(count)), default=0)
    typed, weighted = kind is not None, weight is not None
    return EdgeChunks(count, n, chunk, typed, weighted, num_types, options.add_reverse, featured)


def _parts(count: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
