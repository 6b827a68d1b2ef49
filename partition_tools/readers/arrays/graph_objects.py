"""The arrays in the graph objects of PyG, DGL and NetworkX, by the names that our readers know."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.arrays.in_memory import as_array
from partition_tools.readers.arrays.joined_types import joined
from partition_tools.workspace.progress import Reporter

MASKS = ("train_mask", "val_mask", "test_mask")
#: What DGL itself keeps on nodes and edges, by names that begin like these.
_OF_DGL = ("_ID", "_TYPE")
_EDGE_DATA = {
    "w": "edge_weight",
    "weight": "edge_weight",
    "type": "edge_type",
    "etype": "edge_type",
    "rel_type": "edge_type",
    "feat": "edge_feat",
}


def named_of_pyg(data: Any, reporter: Reporter) -> dict[str, Any]:
    """{name: array} of a Data or HeteroData object of PyG. Raises FormatError where it has its edges as a sparse
    matrix.
    """
    if hasattr(data, "node_types"):
        nodes = {kind: _there(data[kind].to_dict()) | {"num_nodes": data[kind].num_nodes} for kind in data.node_types}
        edges = {relation: _there(data[relation].to_dict()) for relation in data.edge_types}
        return joined("HeteroData", nodes, edges, reporter)
    arrays = _there(data.to_dict())
    if "edge_index" not in arrays and "adj_t" in arrays:
        raise FormatError("this Data has adj_t in place of edge_index (the ToSparseTensor transform); leave that out")
    if "num_nodes" not in arrays and data.num_nodes is not None and "x" not in arrays:
        arrays["num_nodes"] = data.num_nodes
    return arrays


def _there(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arrays.items() if value is not None}


def named_of_dgl(graph: Any, reporter: Reporter) -> dict[str, Any]:
    """{name: array} of a DGLGraph, of one type of nodes and edges or of several."""
    relations = graph.canonical_etypes
    if len(relations) == 1 and len(graph.ntypes) == 1:
        src, dst = graph.edges()
        return {
            "src": src,
            "dst": dst,
            "num_nodes": graph.num_nodes(),
            **of_dgl(graph.ndata),
            **of_dgl(graph.edata, True),
        }
    nodes = {kind: {"num_nodes": graph.num_nodes(kind), **of_dgl(graph.nodes[kind].data)} for kind in graph.ntypes}
    for of_type in nodes.values():
        of_type.pop("n_id", None)  # ids within the types, which are not distinct
    edges = {
        relation: {"edge_index": np.stack([as_array(end, "edges") for end in graph.edges(etype=relation)])}
        | of_dgl(graph.edges[relation].data, True)
        for relation in relations
    }
    return joined("DGL graph", nodes, edges, reporter)


def of_dgl(data: Mapping[str, Any], of_edges: bool = False) -> dict[str, Any]:
    """The user's data on nodes or edges, by the names that our readers know."""
    return {
        _EDGE_DATA.get(name, f"edge_{name}") if of_edges else name: value
        for name, value in data.items()
        if not name.startswith(_OF_DGL)
    } | ({} if of_edges or "_ID" not in data else {"n_id": data["_ID"]})


def entries_of(matrix: Any) -> Any:
    """The entries of a sparse matrix of SciPy. The zeros that fill the blocks of BSR are none."""
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format()
        entries = matrix.tocoo(copy=True)
    except ValueError as error:
        raise FormatError(f"the sparse matrix is damaged: {error}") from error
    entries.sum_duplicates()
    if matrix.format == "bsr":
        entries.eliminate_zeros()
    return entries


def arrays_of_networkx(
    graph: Any, features: str | Sequence[str] = "x", label: str = "y", split: str = "split", weight: str = "weight"
) -> dict[str, Any]:
    """{argument of `save_graph`: value} of a graph of NetworkX; see `libraries.from_networkx`. Raises FormatError."""
    if not hasattr(graph, "nodes") or not hasattr(graph, "is_directed"):
        raise FormatError(f"expected a graph of NetworkX, got {type(graph).__name__}")
    nodes = list(graph.nodes)
    row = {node: number for number, node in enumerate(nodes)}
    ends = np.array([(row[u], row[v]) for u, v in graph.edges()], np.int64).reshape(-1, 2).T
    weights = _weights([value for _, _, value in graph.edges(data=weight)], weight)
    if not graph.is_directed():
        # Both directions, with one weight: `undirected` of `save_graph` would merge parallel edges.
        back = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, back]], 1)
        weights = None if weights is None else np.concatenate([weights, weights[back]])
    per_node = {name: [graph.nodes[node].get(name) for node in nodes] for name in (label, split)}
    names = _names(nodes)
    return {
        "edge_index": ends if names is None else names[ends],
        "node_ids": names,
        "features": _attributes(graph, nodes, features),
        "labels": _labels(per_node[label]),
        "split": per_node[split] if any(word is not None for word in per_node[split]) else _masks(graph, nodes),
        "edge_weight": weights,
        "num_nodes": len(nodes) if names is None else None,
    }


def _names(nodes: Sequence[Any]) -> np.ndarray | None:
    """The names of NetworkX's nodes, integers or text (n,); None for 0, 1, 2, … in this order.

    FormatError for two nodes of one name.
    """
    if nodes == list(range(len(nodes))):
        return None
    if all(isinstance(node, int) and not isinstance(node, bool) and -(2**63) <= node < 2**63 for node in nodes):
        return np.array(nodes, np.int64)
    names = np.array([str(node) for node in nodes])
    if len(np.unique(names)) < len(names):
        raise FormatError("two nodes have one name as text; give names that differ (networkx.relabel_nodes)")
    return names


def _attributes(graph: Any, nodes: Sequence[Any], names: str | Sequence[str]) -> np.ndarray | None:
    single = isinstance(names, str)
    wanted = [names] if isinstance(names, str) else list(names)
    there = [name for name in wanted if any(name in graph.nodes[node] for node in nodes)]
    if single and not there:
        return None
    for name in wanted:
        for node in nodes:
            if name not in graph.nodes[node]:
                raise FormatError(f"node {node!r} has no attribute {name!r}; features need it of every node")
    if single:
        return as_array([as_array(graph.nodes[node][wanted[0]], wanted[0]).reshape(-1) for node in nodes], "features")
    return as_array([[graph.nodes[node][name] for name in wanted] for node in nodes], "features")


def _masks(graph: Any, nodes: Sequence[Any]) -> dict[str, np.ndarray] | None:
    """Masks of the attributes train_mask, val_mask and test_mask of nodes, as PyG's to_networkx writes them."""
    masks = {}
    for mask in MASKS:
        name = mask.removesuffix("_mask")
        values = [graph.nodes[node].get(mask) for node in nodes]
        if any(value is not None for value in values):
            if any(value not in (0, 1) for value in values):
                raise FormatError(f"the attribute {name}_mask must be True or False for each node")
            masks[name] = np.array(values, bool)
    return masks or None


def _labels(values: list[Any]) -> Any:
    """Labels of nodes; some may have none."""
    given = [value for value in values if value is not None]
    if not given:
        return None
    if all(np.ndim(value) == 1 for value in given):
        nothing = np.full(len(given[0]), np.nan)
        return np.array([nothing if value is None else np.asarray(value, np.float64) for value in values])
    if any(isinstance(value, str) for value in given):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _weights(values: list[Any], name: str) -> np.ndarray | None:
    given = [value for value in values if value is not None]
    if not given:
        return None
    if len(given) < len(values):
        raise FormatError(
            f"{len(values) - len(given)} edges have no attribute {name!r} and {len(given)} have it; give it to all, or "
            "say weight='' to leave weights out"
        )
    try:
        return np.array(values, np.float64)
    except (ValueError, TypeError) as error:
        raise FormatError(f"the attribute {name!r} of edges must be a number: {error}") from error


def unread_attributes(graph: Any, of_nodes: set[str], of_edges: set[str]) -> list[str]:
    """The names of other attributes of a graph of NetworkX, sorted."""
    nodes = {str(name) for _, data in graph.nodes(data=True) for name in data} - of_nodes - set(MASKS)
    return sorted(nodes | {str(name) for *_, data in graph.edges(data=True) for name in data} - of_edges)


def warn_of_sums(matrix: Any, entries: Any, reporter: Reporter) -> None:
    """Warn of entries of a sparse matrix that stood twice: they are summed, as SciPy means them."""
    if matrix.nnz > entries.nnz and matrix.format != "bsr":
        reporter.warn(
            f"{matrix.nnz - entries.nnz:,} entries of the matrix stand more than once and are summed to weights"
        )
