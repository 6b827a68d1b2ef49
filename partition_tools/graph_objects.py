"""The arrays in the graph objects of PyG, DGL and NetworkX, by the names that our readers know."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.in_memory import as_array

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


def named_of_pyg(data: Any) -> dict[str, Any]:
    """{name: array} of a Data object of PyG. Raises FormatError where it has its edges as a sparse matrix."""
    arrays = {name: value for name, value in data.to_dict().items() if value is not None}
    if "edge_index" not in arrays and "adj_t" in arrays:
        raise FormatError("this Data has adj_t in place of edge_index (the ToSparseTensor transform); leave that out")
    if "num_nodes" not in arrays and data.num_nodes is not None and "x" not in arrays:
        arrays["num_nodes"] = data.num_nodes
    return arrays


def named_of_dgl(graph: Any) -> dict[str, Any]:
    """{name: array} of a DGLGraph. Raises FormatError for one of several types."""
    if len(getattr(graph, "canonical_etypes", ())) != 1:
        raise FormatError(
            "this DGLGraph has several types of nodes or edges; give dgl.to_homogeneous(graph, ndata=['feat'])"
        )
    src, dst = graph.edges()
    arrays: dict[str, Any] = {"src": src, "dst": dst, "num_nodes": graph.num_nodes()}
    arrays |= {name: value for name, value in graph.ndata.items() if not name.startswith(_OF_DGL)}
    for name, value in graph.edata.items():
        if not name.startswith(_OF_DGL):
            arrays[_EDGE_DATA.get(name, f"edge_{name}")] = value
    return arrays


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
    return {
        "edge_index": ends,
        "features": _attributes(graph, nodes, features),
        "labels": _labels(per_node[label]),
        "split": _all_or_none(per_node[split]),
        "edge_weight": weights,
        "num_nodes": len(nodes),
    }


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


def _all_or_none(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values


def _labels(values: list[Any]) -> Any:
    """Labels of nodes, of which some may have none."""
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
    return np.array(values, np.float64)
