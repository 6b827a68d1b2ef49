"""A graph whose edges come from one file and whose features, labels and splits come from tables beside it.

Shared by edge lists and Matrix Market. The tables decide the number of nodes where they can, so that isolated nodes are
kept and an edge beyond the last row is an error rather than a node without features.
"""

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.counts import largest
from partition_tools.raw import RawGraph
from partition_tools.tables import node_tables, place_rows


def assemble(src, dst, options, source, *, weight=None, kind=None, num_nodes=None):
    """The `RawGraph` of edges and the tables that `options` (TableOptions) names.

    src, dst: (E,) of anything sortable with options.relabel, else of integers. num_nodes: where the format states it.
    """
    tables, type_names = node_tables(options)
    if options.relabel:
        src, dst, tables, num_nodes = _relabel(src, dst, tables, num_nodes)
    lengths = {name: len(values) for name, (ids, values) in tables.items() if ids is None}
    if len(set(lengths.values())) > 1:
        raise FormatError(f"the tables have different numbers of rows: {lengths}")
    if num_nodes is None:
        keyed = [ids for ids, _ in tables.values() if ids is not None and ids.dtype.kind in "iu"]
        num_nodes = next(iter(lengths.values()), largest(src, dst, *keyed) + 1)
    placed = {name: place_rows(ids, values, num_nodes, name) for name, (ids, values) in tables.items()}
    split = {}
    if "split" in placed:
        if len(placed["split"]) != num_nodes:
            raise FormatError(f"the table of splits has {len(placed['split'])} rows, expected {num_nodes}")
        split = {name: placed["split"] == value for value, name in ((1, "train"), (2, "val"), (3, "test"))}
    return RawGraph(src, dst, num_nodes, placed.get("features"), placed.get("labels"), split, None, weight, kind,
                    source, node_type=placed.get("node_type"), type_names={"nodes": type_names})


def _relabel(src, dst, tables, num_nodes):
    """Number the nodes by the sorted order of their ids, over edges and keyed tables."""
    keyed = [ids for ids, _ in tables.values() if ids is not None]
    try:
        names = np.unique(np.concatenate([np.unique(src), np.unique(dst), *keyed]))
    except TypeError as error:
        raise FormatError(f"node ids mix words and numbers: {error}") from error
    tables = {name: (None if ids is None else np.searchsorted(names, ids), values)
              for name, (ids, values) in tables.items()}
    num_nodes = len(names) if num_nodes is None else num_nodes
    return np.searchsorted(names, src), np.searchsorted(names, dst), tables, num_nodes
