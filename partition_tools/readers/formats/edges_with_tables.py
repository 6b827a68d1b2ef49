"""A graph with edges from one file, and features, labels and splits from tables next to it.

Edge lists, matrices and METIS share it. The tables decide the number of nodes where they can. So isolated
nodes are kept, and an edge beyond the last row is an error rather than a node without features.
"""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import largest, warn_of_gaps
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.tables.node_ids import numbered, read_node_ids
from partition_tools.readers.tables.node_tables import NodeTable, node_tables, place_rows
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

RELABEL = "if the ids have gaps or do not begin with 0, use --relabel"


def assemble(  # noqa: PLR0913 - callers name them
    src: np.ndarray,
    dst: np.ndarray,
    options: TableOptions,
    source: str,
    scratch: Scratch,
    *,
    weight: np.ndarray | None = None,
    kind: np.ndarray | None = None,
    edge_features: np.ndarray | None = None,
    num_nodes: int | None = None,
    first: int = 0,
) -> RawGraph:
    """The `RawGraph` of edges and the tables that `options` (TableOptions) names.

    src, dst: (E,) of integers, or with options.relabel of integers or text. num_nodes: if the format states it. first:
    the format's number of the first node, 0 or 1.
    """
    relabel = options.relabel or options.node_ids is not None
    tables, type_names, files = node_tables(options, relabel, scratch.reporter)
    ids = None
    if relabel:
        src, dst, tables, ids = _relabel(src, dst, tables, options.node_ids, scratch)
        num_nodes = len(ids)
    elif first and num_nodes is not None:
        tables = _counted_from(first, tables, num_nodes, scratch.reporter)
    lengths = {name: len(values) for name, (ids, values) in tables.items() if ids is None}
    if len(set(lengths.values())) > 1:
        raise FormatError(f"the tables have different numbers of rows: {lengths}")
    if num_nodes is None:
        if not (tables or len(src)):
            raise FormatError(f"{source} has no edges, and no table says which nodes there are")
        keyed = [ids for ids, _ in tables.values() if ids is not None and ids.dtype.kind in "iu"]
        num_nodes = next(iter(lengths.values()), largest(src, dst, *keyed) + 1)
        if lengths:
            _check_ends(src, dst, num_nodes, next(iter(lengths)))
        else:
            warn_of_gaps((src, dst, *keyed), num_nodes, RELABEL, scratch.reporter)
    placed = {
        name: place_rows(keys, values, num_nodes, name, files[name][0], ids) for name, (keys, values) in tables.items()
    }
    for name, length in lengths.items():
        if length != num_nodes:
            raise FormatError(f"the table of {name} has {length} rows, expected {num_nodes}, one for each node")
    split = {}
    if "splits" in placed:
        split = {name: placed["splits"] == value for value, name in ((1, "train"), (2, "val"), (3, "test"))}
    return RawGraph(
        src=src,
        dst=dst,
        num_nodes=num_nodes,
        features=placed.get("features"),
        labels=placed.get("labels"),
        split=split,
        num_classes=None,
        weight=weight,
        type=kind,
        source=source,
        node_type=placed.get("node types"),
        type_names=type_names,
        ids=ids,
        edge_features=edge_features,
        tables=files,
    )


def _check_ends(src: np.ndarray, dst: np.ndarray, num_nodes: int, name: str) -> None:
    """FormatError for an edge that leads beyond the rows of a table: its ids have gaps, or the table is short."""
    if not len(src) or largest(src, dst) < num_nodes:
        return
    edge = int(np.argmax((src >= num_nodes) | (dst >= num_nodes)))
    used, first = len(np.union1d(src, dst)), min(src.min(), dst.min())
    raise FormatError(
        f"edge {edge} joins {src[edge]} and {dst[edge]}, outside the nodes 0..{num_nodes - 1}: the table of "
        f"{name} has {num_nodes} rows, and the edges name {used} ids from {first} to {largest(src, dst)}; "
        f"{RELABEL}, with ids in a first column id of the tables or in --node-ids FILE"
    )


def _relabel(
    src: np.ndarray,
    dst: np.ndarray,
    tables: dict[str, NodeTable],
    node_ids: Path | None,
    scratch: Scratch,
) -> tuple[np.ndarray, np.ndarray, dict[str, NodeTable], np.ndarray]:
    """Number the nodes by the sorted order of their ids, over edges, keyed tables and --node-ids. (…, all ids)."""
    order = None if node_ids is None else read_node_ids(node_ids)
    keyed = {name: ids for name, (ids, _) in tables.items() if ids is not None}
    all_ids, places, rows = numbered({"sources": src, "destinations": dst}, keyed, order, node_ids, scratch)
    for name, (ids, values) in tables.items():
        if ids is None and rows is None and not np.array_equal(all_ids, np.arange(len(values))):
            raise FormatError(
                f"with --relabel the table of {name} does not say which node a row belongs to; give it a "
                "first column with the heading id, or the ids in the order of the rows, one per line, with "
                "--node-ids FILE"
            )
        if ids is None and rows is not None and len(values) != len(rows):
            raise FormatError(
                f"the table of {name} has {len(values)} rows but {node_ids} {len(rows)} ids; expected one id for each "
                "row"
            )
    tables = {name: (places.get(name, rows), values) for name, (_, values) in tables.items()}
    return places["sources"], places["destinations"], tables, all_ids


def _counted_from(first: int, tables: dict[str, NodeTable], num_nodes: int, reporter: Reporter) -> dict[str, NodeTable]:
    """Tables whose ids count from 0. FormatError where they may count from 0, or from `first` as the format does."""
    keyed = [ids for ids, _ in tables.values() if ids is not None and ids.dtype.kind in "iu" and len(ids)]
    if not keyed:
        return tables
    low, high = min(int(ids.min()) for ids in keyed), max(int(ids.max()) for ids in keyed)
    if low >= first and high < num_nodes:
        raise FormatError(
            f"the ids of the tables are {low} to {high}, and may count the {num_nodes} nodes from 0, or from {first} "
            f"as this format does; give one table a row for the node 0 or for the node {num_nodes + first - 1}"
        )
    if low < first or high > num_nodes + first - 1:
        return tables
    reporter.stage(f"the ids of the tables count from {first}, as the format does")
    return {
        name: (ids if ids is None or ids.dtype.kind not in "iu" else ids - first, values)
        for name, (ids, values) in tables.items()
    }
