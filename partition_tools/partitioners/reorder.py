"""The same graph with its nodes in another order: everything indexed by node or by edge moves, its name and keys do
not.

`original_id` keeps the import order, which keys all randomness in training, so a reordered graph trains to the same
curve.
"""

import dataclasses
from typing import cast

import numpy as np

from hpcgnn.graphfile.ranges import permuted_rows
from hpcgnn.graphfile.schema import GraphData, RowReader
from hpcgnn.graphfile.storage import Csr, Edges
from partition_tools.canonical.edge_features import Counted, GatheredRows
from partition_tools.graph.fields import PlacedField
from partition_tools.out_of_core.csr import resorted
from partition_tools.workspace.scratch import Scratch


def reordered(
    data: GraphData,
    order: np.ndarray,
    offsets: np.ndarray,
    scratch: Scratch,
    versions: dict[str, str],
) -> GraphData:
    """`GraphData` whose node i is node order[i] of `data`, clustered by `offsets`, without a graph of the clusters.

    order: int64 (n,) permutation. The edges are anything that slices, and are sorted in files. Dense features are
    read once for each half of the memory that they fill. Memory: the scratch directory's limit, and 40 bytes per node.
    """
    n = len(order)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)

    def moved(edges: Edges, name: str) -> Edges:
        return resorted(edges, lambda row, column: place[row] * n + place[column], name, scratch)

    numbered, of_edges = data.edges, data.edge_features
    if of_edges is not None:  # each edge knows which row of the features is its own
        numbered = dataclasses.replace(data.edges, row=cast(np.ndarray, Counted(len(data.edges.indices))))
    edges = moved(numbered, "reordered")
    edges_out = None if data.edges_out is None else moved(data.edges_out, "reordered_out")
    series = data.snapshots
    if series is not None:
        fields = {name: PlacedField(each, place, scratch.memory // 8) for name, each in series.fields.items()}
        series = dataclasses.replace(series, fields=fields)

    def gathered(rows: RowReader | None) -> RowReader | None:
        return None if rows is None else GatheredRows(rows, order, scratch.memory // 32)

    if of_edges is not None and edges.row is not None:
        of_edges = GatheredRows(of_edges, edges.row, scratch.memory // 4)
    return dataclasses.replace(
        data,
        edges=dataclasses.replace(edges, row=None),
        edge_features=of_edges,
        edges_out=edges_out,
        features=_features_in_order(data.features, order, scratch),
        labels=data.labels[order],
        split=data.split[order],
        original_id=data.original_id[order],
        node_type=None if data.node_type is None else data.node_type[order],
        cluster_offsets=offsets,
        cluster_graph=None,
        versions=versions,
        position=gathered(data.position),
        volume=gathered(data.volume),
        given=gathered(data.given),
        snapshots=series,
    )


def _features_in_order(features: RowReader | Csr | None, order: np.ndarray, scratch: Scratch) -> RowReader | Csr | None:
    """Array-like of the features in the new order."""
    if features is None:
        return None
    if isinstance(features, Csr):
        indptr, old = permuted_rows(features.indptr, order)
        values = None if features.data is None else features.data[old]
        return Csr(indptr, features.indices[old], values, features.num_columns)
    return GatheredRows(features, order, scratch.memory // 2)
