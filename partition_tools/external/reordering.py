"""A graph with its nodes in another order, its edges sorted in files: what `reorder.reordered` gives, bit for bit."""

import dataclasses

import numpy as np

from hpcgnn.graphfile.schema import Csr, Edges, GraphData
from hpcgnn.graphfile.storage import SLAB_ROWS
from partition_tools.external.csr import csr_piece, edge_slice, write_csr
from partition_tools.external.records import Records
from partition_tools.external.scattered import Scattered
from partition_tools.external.scratch import Scratch
from partition_tools.external.sorting import Runs
from partition_tools.progress import Reporter
from partition_tools.reorder import permuted_csr


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

    def sorted_anew(edges: Edges, name: str) -> Edges:
        runs = Runs(scratch, f"{name}.runs", by_weight=True)
        total = int(edges.indptr[-1])

        def make(index: int) -> Records:
            row, column, kind, weight = edge_slice(edges, index * runs.size, min((index + 1) * runs.size, total))
            return Records(place[row] * n + place[column], kind, weight)

        if not scratch.done(f"{name}.facts"):
            with reporter.bar(total, f"sorting {total:,} edges", "edges") as advance:
                runs.form(make, max(1, -(-total // runs.size)), advance)
        with reporter.bar(total, f"merging {total:,} edges", "edges") as advance:
            written = write_csr(scratch, name, lambda: runs.merged(lambda found: csr_piece(found, n), advance), n)
        runs.remove()
        return written.edges

    features = data.features
    if isinstance(features, Csr):
        features = permuted_csr(features, order)
    elif features is not None:
        row_bytes = max(1, int(np.prod(features.shape[1:], dtype=np.int64)) * features.dtype.itemsize)
        window = max(1, scratch.memory // (2 * row_bytes) // SLAB_ROWS) * SLAB_ROWS
        features = Scattered(features, place, window, SLAB_ROWS, scratch)
    return dataclasses.replace(
        data,
        edges=sorted_anew(data.edges, "reordered"),
        edges_out=None if data.edges_out is None else sorted_anew(data.edges_out, "reordered_out"),
        features=features,
        labels=data.labels[order],
        split=data.split[order],
        original_id=data.original_id[order],
        node_type=None if data.node_type is None else data.node_type[order],
        cluster_offsets=offsets,
        cluster_graph=None,
        versions=versions,
    )
