"""Features of the edges that end at own nodes, read in the order of the rank's edges.

The file has them in its order of the edges. A rank numbers its edges by own row in the local order, an added self loop
last (EdgeList). So a row is read to its edge's place there. Only the result is as long as all edges times their
features. Out-edges have none: functions of edges are computed where the edges end.
"""

from dataclasses import replace

import numpy as np
import torch

from hpcgnn.graph.local import Adjacency
from hpcgnn.graphfile.ranges import row_blocks, segments
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.order import LocalOrder

#: Edges whose features exist at a time while means are made.
_TILE_EDGES = 1 << 18


def read_edge_features(
    file: GraphFile,
    indptr: np.ndarray,
    spans: list[tuple[int, int]],
    order: LocalOrder,
    inward: Adjacency,
    dtype: np.typing.DTypeLike,
    remaining: np.ndarray | None = None,
) -> np.ndarray:
    """(E_p, F) of the edges of an Adjacency, in the order of its EdgeList.

    An added self loop gets the mean of its node's other edges (PyG's fill_value of attention layers), zeros if there
    are none. indptr: int64 (n_p + 1,), of the own rows in the order of the file. spans: their edges in the file.
    remaining: bool (indptr[-1],), the edges that the Adjacency has, None for all.
    """
    if remaining is not None:
        indptr = np.concatenate([[0], np.cumsum(remaining)])[indptr]
    counts, given = inward.edge_counts.numpy(), np.diff(indptr)
    stops, total = np.cumsum(counts), int(counts.sum())
    place = np.arange(len(given)) if order.number is None else order.number
    lonely = np.ones(len(given), bool)
    lonely[place] = counts[place] > given
    number, taken_out = None, 0
    if order.number is not None or lonely.any() or remaining is not None:
        number = segments((stops - counts)[place], given)
    if number is not None and remaining is not None:  # the others are put behind these
        taken_out = len(remaining) - len(number)
        everywhere = np.empty(len(remaining), np.int64)
        everywhere[remaining], everywhere[~remaining] = number, total + np.arange(taken_out)
        number = everywhere
    features = file.read("edges/features", spans, dtype, number, total + taken_out)
    features.resize((total, features.shape[1]), refcheck=False)  # which gives back their memory
    if lonely.any():
        _fill_loops(features, stops, lonely)
    return features


def _fill_loops(features: np.ndarray, stops: np.ndarray, lonely: np.ndarray) -> None:
    """Give the last edge of each row that is lonely the mean of the others. stops: int64 (n_p,), where rows end. All
    rows have an edge, for each has a loop.
    """
    features[stops[lonely] - 1] = 0
    indptr = np.concatenate([[0], stops])
    for first, last in row_blocks(indptr):
        filled = np.flatnonzero(lonely[first:last])
        starts = indptr[first:last]
        sums = np.add.reduceat(features[starts[0] : stops[last - 1]], starts - starts[0], dtype=np.float64)
        others = np.maximum(np.diff(indptr[first : last + 1]) - 1, 1)
        features[stops[first:last][filled] - 1] = sums[filled] / others[filled, None]


def edge_means(
    file: GraphFile,
    indptr: np.ndarray,
    spans: list[tuple[int, int]],
    order: LocalOrder,
    remaining: np.ndarray | None = None,
) -> np.ndarray:
    """float64 (n_p, F): the means of the features of each own node's in-edges, in the local order; zeros without any.

    Added self loops have no part in them. Edges are read some rows at a time. Arguments as of `read_edge_features`.
    """
    place = np.arange(len(indptr) - 1) if order.number is None else order.number
    means = np.zeros((len(indptr) - 1, file.meta.num_edge_features))
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.cumsum(
        [stop - start for start, stop in spans], dtype=np.int64
    )  # of the own edges, one span after another
    for first, last in row_blocks(indptr, _TILE_EDGES):
        begin, end = int(indptr[first]), int(indptr[last])
        rows = file.read("edges/features", _cut(starts, ends, begin, end), np.float64)
        of_row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        if remaining is not None:
            rows, of_row = rows[remaining[begin:end]], of_row[remaining[begin:end]]
        counts = np.bincount(of_row, minlength=last - first)
        some = counts > 0
        begins = np.cumsum(counts) - counts
        if len(rows):
            means[place[first:last][some]] = np.add.reduceat(rows, begins[some]) / counts[some, None]
    return means


def _cut(starts: np.ndarray, ends: np.ndarray, begin: int, end: int) -> list[tuple[int, int]]:
    """The rows of the file that own edges begin … end are.

    starts: where each span begins in the file.
    ends: int64, where it ends among the own edges.
    """
    found = []
    for span in range(int(np.searchsorted(ends, begin, side="right")), int(np.searchsorted(ends, end)) + 1):
        if span < len(ends):
            before = int(ends[span - 1]) if span else 0
            start = int(starts[span]) - before
            found.append((start + max(begin, before), start + min(end, int(ends[span]))))
    return found


def carrying(adjacency: Adjacency, features: torch.Tensor) -> Adjacency:
    """The Adjacency whose edges have these features (E_p, F), in the order of its EdgeList."""
    assert adjacency.edges is not None, "models that read features of edges have the edges kept"
    return replace(adjacency, edges=replace(adjacency.edges, features=features))
