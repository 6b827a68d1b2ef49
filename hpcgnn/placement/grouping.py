"""Groups of consecutive clusters: a small graph for the first map of a large one.

Clusters of nested dissection that follow each other are neighbours at every scale. The graph of their groups keeps what
the dissection knows of the large cuts. METIS splits it in a small part of the time, and mostly better than the graph of
the clusters, whose edges are nearly alike.
"""

import numpy as np

from hpcgnn.placement.links import Graph

MANY_EDGES = 1 << 20  # of a cluster graph that is worth grouping
GROUPS, GROUPS_PER_RANK = 1024, 4  # at least
LOCAL = 4.0  # edges within groups, in those that chance would leave there
CELLS = 1 << 22  # pairs of groups whose edges are counted together


def groups_of(graph: Graph, num_ranks: int) -> tuple[np.ndarray, Graph] | None:
    """(group of each cluster int64 (K,), the graph of the groups), or None where the clusters themselves are to be
    split: they are few, have few edges, or come in no order.
    """
    indptr, indices, weights = graph
    count, groups = len(indptr) - 1, max(GROUPS, GROUPS_PER_RANK * num_ranks)
    if len(indices) <= MANY_EDGES or 2 * groups > count:
        return None
    group = np.arange(count) * groups // count
    pointers, columns, values = [np.zeros(1, np.int64)], [], []
    step = max(1, CELLS // groups)
    for first in range(0, groups, step):
        last = min(first + step, groups)
        low, high = np.searchsorted(group, [first, last])
        edges = slice(int(indptr[low]), int(indptr[high]))
        cells = np.repeat((group[low:high] - first) * groups, np.diff(indptr[low : high + 1])) + group[indices[edges]]
        found = np.bincount(cells, weights[edges], (last - first) * groups).reshape(-1, groups)
        found[np.arange(last - first), np.arange(first, last)] = 0
        row, column = np.nonzero(found)
        pointers.append(pointers[-1][-1:] + np.cumsum(np.bincount(row, minlength=last - first)))
        columns.append(column)
        values.append(found[row, column].astype(np.int64))
    grouped = np.concatenate(pointers), np.concatenate(columns), np.concatenate(values)
    total = float(weights.sum())
    return (group, grouped) if total - float(grouped[2].sum()) > LOCAL * total / groups else None
