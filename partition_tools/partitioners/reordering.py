"""A graph with its nodes in another order, its edges sorted in files: what `reorder.reordered` gives, bit for bit."""

import numpy as np

from hpcgnn.graphfile.schema import Csr, Edges, GraphData, Rows
from hpcgnn.graphfile.storage import SLAB_ROWS
from partition_tools.out_of_core.edges import resorted
from partition_tools.out_of_core.scattered import Scattered
from partition_tools.partitioners.reorder import in_order_of, numbered_edges, permuted_csr
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch


def external_reordered(
    data: GraphData,
    order: np.ndarray,
    offsets: np.ndarray,
    scratch: Scratch,
    reporter: Reporter,
    versions: dict[str, str],
) -> GraphData:
    """`GraphData` whose node i is node order[i] of `data`, clustered by `offsets`.

    data: may have arrays of edges that are anything that slices. Dense features go through files; sparse ones are read
    whole. Memory: what the scratch directory allows, and 40 bytes per node.
    """
    n = len(order)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)

    def moved(edges: Edges, name: str) -> Edges:
        return resorted(edges, lambda row, column: place[row] * n + place[column], name, scratch, reporter)

    features: Rows | Csr | None = data.features
    if isinstance(features, Csr):
        features = permuted_csr(features, order)
    elif features is not None:
        row_bytes = max(1, int(np.prod(features.shape[1:], dtype=np.int64)) * features.dtype.itemsize)
        window = max(1, scratch.memory // (2 * row_bytes) // SLAB_ROWS) * SLAB_ROWS
        features = Scattered(features, place, window, SLAB_ROWS, scratch)
    edges = moved(numbered_edges(data), "reordered")
    edges_out = None if data.edges_out is None else moved(data.edges_out, "reordered_out")
    return in_order_of(data, order, offsets, edges, edges_out, features, versions, scratch.memory // 4)
