"""A graph whose edges come from one file and whose features, labels and splits come from tables beside it.

Shared by edge lists and Matrix Market. The tables decide the number of nodes where they can, so that isolated nodes are
kept and an edge beyond the last row is an error rather than a node without features.
"""

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.counts import largest, warn_of_gaps
from partition_tools.external.scratch import Scratch
from partition_tools.node_ids import numbered, read_node_ids
from partition_tools.node_tables import NodeTable, node_tables, place_rows
from partition_tools.progress import Reporter
from partition_tools.raw import RawGraph
from partition_tools.tables import TableOptions

RELABEL = "if the ids have gaps or do not begin with 0, use --relabel"


def assemble(
    src: np.ndarray,
    dst: np.ndarray,
    options: TableOptions,
    source: str,
    reporter: Reporter,
    scratch: Scratch,
    *,
    weight: np.ndarray | None = None,
    kind: np.ndarray | None = None,
    edge_features: np.ndarray | None = None,
    num_nodes: int | None = None,
) -> RawGraph:
    """The `RawGraph` of edges and the tables that `options` (TableOptions) names.

    src, dst: (E,) of integers, or with options.relabel of integers or text. num_nodes: where the format states it.
    """
    relabel = options.relabel or options.node_ids is not None
    tables, type_names = node_tables(options, relabel, reporter)
    ids = None
    if relabel:
        src, dst, tables, ids = _relabel(src, dst, tables, options, scratch)
        num_nodes = len(ids)
    lengths = {name: len(values) for name, (ids, values) in tables.items() if ids is None}
    if len(set(lengths.values())) > 1:
        raise FormatError(f"the tables have different numbers of rows: {lengths}")
    if num_nodes is None:
        keyed = [ids for ids, _ in tables.values() if ids is not None and ids.dtype.kind in "iu"]
        num_nodes = next(iter(lengths.values()), largest(src, dst, *keyed) + 1)
        if lengths:
            _check_ends(src, dst, num_nodes, next(iter(lengths)))
        else:
            warn_of_gaps((src, dst, *keyed), num_nodes, RELABEL, reporter)
    placed = {name: place_rows(ids, values, num_nodes, name) for name, (ids, values) in tables.items()}
    for name, length in lengths.items():
        if length != num_nodes:
            raise FormatError(f"the table of {name} has {length} rows, expected {num_nodes}, one for each node")
    split = {}
    if "splits" in placed:
        split = {name: placed["splits"] == value for value, name in ((1, "train"), (2, "val"), (3, "test"))}
    return RawGraph(
        src,
        dst,
        num_nodes,
        placed.get("features"),
        placed.get("labels"),
        split,
        None,
        weight,
        kind,
        source,
        node_type=placed.get("node types"),
        type_names=type_names,
        ids=ids,
        edge_features=edge_features,
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
    src: np.ndarray, dst: np.ndarray, tables: dict[str, NodeTable], options: TableOptions, scratch: Scratch
) -> tuple[np.ndarray, np.ndarray, dict[str, NodeTable], np.ndarray]:
    """Number the nodes by the sorted order of their ids, over edges, keyed tables and --node-ids. (…, all ids)."""
    order = None if options.node_ids is None else read_node_ids(options.node_ids)
    keyed = {name: ids for name, (ids, _) in tables.items() if ids is not None}
    names, places, rows = numbered({"sources": src, "destinations": dst}, keyed, order, options.node_ids, scratch)
    for name, (ids, values) in tables.items():
        if ids is None and rows is None and not np.array_equal(names, np.arange(len(values))):
            raise FormatError(
                f"with --relabel the table of {name} does not say which node a row belongs to; give it a "
                "first column with the heading id, or the ids in the order of the rows, one per line, with "
                "--node-ids FILE"
            )
        if ids is None and rows is not None and len(values) != len(rows):
            raise FormatError(
                f"the table of {name} has {len(values)} rows but {options.node_ids} {len(rows)} ids; "
                "expected one id for each row"
            )
    tables = {name: (places.get(name, rows), values) for name, (_, values) in tables.items()}
    return places["sources"], places["destinations"], tables, names
