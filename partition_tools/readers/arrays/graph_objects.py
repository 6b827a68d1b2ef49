"""The arrays in the graph objects of PyG, SciPy and NetworkX, by the names that our readers know."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.arrays.joined_types import joined
from partition_tools.workspace.progress import Reporter


def named_of_pyg(data: Any, reporter: Reporter) -> dict[str, Any]:
    """{name: array} of a Data or HeteroData object of PyG."""
    if hasattr(data, "node_types"):
        nodes = {kind: _there(data[kind].to_dict()) | {"num_nodes": data[kind].num_nodes} for kind in data.node_types}
        edges = {relation: _there(data[relation].to_dict()) for relation in data.edge_types}
        return joined("HeteroData", nodes, edges, reporter)
    arrays = _there(data.to_dict())
    if "num_nodes" not in arrays and data.num_nodes is not None and "x" not in arrays:
        arrays["num_nodes"] = data.num_nodes
    return arrays


def _there(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arrays.items() if value is not None}


def entries_of(matrix: Any, reporter: Reporter) -> Any:
    """The entries of a sparse matrix of SciPy. The zeros that fill the blocks of BSR are none. Warns of entries that
    stood twice: they are summed, as SciPy means them.
    """
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format()
        entries = matrix.tocoo(copy=True)
    except ValueError as error:
        raise FormatError(f"the sparse matrix is damaged: {error}") from error
    entries.sum_duplicates()
    if matrix.format == "bsr":
        entries.eliminate_zeros()
    elif matrix.nnz > entries.nnz:
        reporter.warn(
            f"{matrix.nnz - entries.nnz:,} entries of the matrix stand more than once and are summed to weights"
        )
    return entries


def arrays_of_networkx(
    graph: Any, features: str | Sequence[str], label: str, split: str, weight: str
) -> dict[str, Any]:
    """{argument of `save_graph`: value} of a graph of NetworkX; see `libraries.from_networkx`. Raises FormatError."""
    if not hasattr(graph, "nodes") or not hasattr(graph, "is_directed"):
        raise FormatError(f"expected a graph of NetworkX, got {type(graph).__name__}")
    nodes = list(graph.nodes)
    row = {node: number for number, node in enumerate(nodes)}
    ends = np.array([(row[u], row[v]) for u, v in graph.edges()], np.int64).reshape(-1, 2).T
    weights = _values([value for _, _, value in graph.edges(data=weight)], f"the attribute {weight!r} of edges", True)
    if not graph.is_directed():
        # Both directions, with one weight: `undirected` of `save_graph` would merge parallel edges.
        back = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, back]], 1)
        weights = None if weights is None else [*weights, *np.array(weights)[back].tolist()]
    wanted = [features] if isinstance(features, str) else list(features)
    columns = [
        _values([graph.nodes[node].get(name) for node in nodes], f"the attribute {name!r} of nodes", True)
        for name in wanted
    ]
    there = [column for column in columns if column is not None]
    if there and len(there) < len(columns):
        raise FormatError(f"no node has an attribute {wanted[columns.index(None)]!r}; features need it of every node")
    names = None if nodes == list(range(len(nodes))) else np.array(nodes if _integers(nodes) else list(map(str, nodes)))
    if names is not None and len(np.unique(names)) < len(names):
        raise FormatError("two nodes have one name as text; give names that differ (networkx.relabel_nodes)")
    return {
        "edge_index": ends if names is None else names[ends],
        "node_ids": names,
        "features": np.column_stack([np.array(column) for column in there]) if there else None,
        "labels": _values([graph.nodes[node].get(label) for node in nodes], "labels", False),
        "split": _values([graph.nodes[node].get(split) for node in nodes], "splits", False),
        "edge_weight": weights,
        "num_nodes": len(nodes) if names is None else None,
    }


def _integers(nodes: Sequence[Any]) -> bool:
    return all(isinstance(node, int) and not isinstance(node, bool) and -(2**63) <= node < 2**63 for node in nodes)


def _values(values: list[Any], what: str, all_of_them: bool) -> list[Any] | None:
    """The values of an attribute, or None if nothing has it. Raises FormatError where some lack it and all need it."""
    missing = sum(value is None for value in values)
    if all_of_them and 0 < missing < len(values):
        raise FormatError(f"{missing} have no {what.removeprefix('the ')}, and others have it; give it to all")
    return None if missing == len(values) else values
