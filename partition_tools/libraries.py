"""Graph files from the graph objects of other libraries: PyG's, DGL's, SciPy's and NetworkX's.

What PyG and DGL keep by name goes through the same reader as the arrays of an archive (`sources/named_arrays.py`), so
that what would be lost is refused there and here in the same words. None of the libraries is imported: whoever has such
an object has its library.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import GraphData
from partition_tools.arrays import Saving, as_array, save_graph, write_raw
from partition_tools.progress import Reporter
from partition_tools.sources.named_arrays import graph_of
from partition_tools.tables import TableOptions

#: What DGL itself keeps on nodes and edges, by names that begin like these.
_OF_DGL = ("_ID", "_TYPE")
_EDGE_DATA = {
    "w": "edge_weight",
    "weight": "edge_weight",
    "type": "edge_type",
    "etype": "edge_type",
    "rel_type": "edge_type",
}


class InMemory:
    """Arrays by their names, as `graph_of` wants them. path: what the graph is called in errors."""

    def __init__(self, what: str, arrays: Mapping[str, Any]) -> None:
        self.path, self.arrays, self.files = Path(what), dict(arrays), list(arrays)

    def array(self, name: str) -> np.ndarray | None:
        """One array, or None if it is not there."""
        return as_array(self.arrays[name], name) if name in self.arrays else None


def from_pyg(
    data: Any, path: str | Path, *, ignore: Sequence[str] = (), split_column: int | None = None, **saving: Any
) -> GraphData:
    """Write a `Data` object of PyG as a graph file: edge_index, x, y, the masks, edge_weight, edge_type, node_type.

    What else it holds and would be lost is refused, unless `ignore` names it (edge_attr, for example). split_column: of
    masks with a column for each of several splits. saving: as of `save_graph`. For HeteroData give
    data.to_homogeneous(). Raises what `save_graph` raises.
    """
    if hasattr(data, "edge_types") and hasattr(data, "to_homogeneous"):
        raise FormatError(
            "this is a HeteroData, whose nodes have types; give data.to_homogeneous(), in which they are node_type and "
            "edge_type (its types of nodes must have features of one width)"
        )
    if not hasattr(data, "to_dict"):
        raise FormatError(f"expected a Data object of PyG, got {type(data).__name__}; of a data set give dataset[0]")
    return save_named("PyG data", named_of_pyg(data), path, ignore, split_column, saving)


def named_of_pyg(data: Any) -> dict[str, Any]:
    """{name: array} of a Data object of PyG. Raises FormatError where it has its edges as a sparse matrix."""
    arrays = {name: value for name, value in data.to_dict().items() if value is not None}
    if "edge_index" not in arrays and "adj_t" in arrays:
        raise FormatError("this Data has adj_t in place of edge_index (the ToSparseTensor transform); leave that out")
    if "num_nodes" not in arrays and data.num_nodes is not None and "x" not in arrays:
        arrays["num_nodes"] = data.num_nodes
    return arrays


def from_dgl(graph: Any, path: str | Path, *, ignore: Sequence[str] = (), **saving: Any) -> GraphData:
    """Write a homogeneous `DGLGraph` as a graph file: its edges, and of ndata feat, label and the masks, of edata the
    weight (w, weight) and the type (etype, type).

    What else it holds and would be lost is refused, unless `ignore` names it (edge data as edge_NAME). saving: as of
    `save_graph`. A DGLGraph stores directed edges: one of an undirected graph has both directions. Raises what
    `save_graph` raises.
    """
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
    return save_named("DGL graph", arrays, path, ignore, None, saving)


def save_named(
    what: str,
    arrays: Mapping[str, Any],
    path: str | Path,
    ignore: Sequence[str],
    split_column: int | None,
    saving: Mapping[str, Any],
) -> GraphData:
    """Write a graph of named arrays as a graph file. what: its name in errors. saving: fields of `Saving`."""
    how = Saving(**saving)
    tables = TableOptions(ignore=(ignore,) if isinstance(ignore, str) else tuple(ignore), split_column=split_column)
    raw = graph_of(InMemory(what, arrays), tables, how.reporter or Reporter())
    raw.source = Path(path).stem
    return write_raw(path, raw, how)


def from_scipy(
    matrix: Any,
    path: str | Path,
    features: Any = None,
    labels: Any = None,
    split: Any = None,
    *,
    weighted: bool | None = None,
    transposed: bool = False,
    **more: Any,
) -> GraphData:
    """Write a sparse square matrix as a graph file: the entry in row i and column j is an edge from i to j.

    transposed: it is an edge from j to i. weighted: whether entries are weights (None: unless all of them are 1). The
    rest is as of `save_graph`.
    """
    if not hasattr(matrix, "tocoo"):
        raise FormatError(f"expected a sparse matrix of SciPy, got {type(matrix).__name__}")
    rows, columns = matrix.shape
    if rows != columns:
        raise FormatError(f"expected a square matrix, with a row and a column for each node, got {rows} x {columns}")
    entries = matrix.tocoo()
    if entries.data.dtype.kind == "c":
        raise FormatError("the matrix is complex; expected real numbers")
    ends = (entries.col, entries.row) if transposed else (entries.row, entries.col)
    if weighted is None:
        weighted = bool((entries.data != 1).any())
    weight = entries.data if weighted else None
    return save_graph(path, np.stack(ends), features, labels, split, edge_weight=weight, num_nodes=rows, **more)


def from_networkx(
    graph: Any,
    path: str | Path,
    *,
    features: str | Sequence[str] = "x",
    label: str = "y",
    split: str = "split",
    weight: str = "weight",
    **more: Any,
) -> GraphData:
    """Write a graph of NetworkX as a graph file; the k-th of list(graph.nodes) is node k.

    features: the attribute of a node that holds its row of numbers, or the names of several that hold one number each.
    label, split, weight: attributes of nodes (class or word; train, val or test) and of edges. What no node has is left
    out; what some nodes lack is an error for features, and nothing for labels and splits. A Graph is undirected, a
    DiGraph directed; multigraphs likewise. The rest is as of `save_graph`.
    """
    if not hasattr(graph, "nodes") or not hasattr(graph, "is_directed"):
        raise FormatError(f"expected a graph of NetworkX, got {type(graph).__name__}")
    nodes = list(graph.nodes)
    row = {node: number for number, node in enumerate(nodes)}
    ends = np.array([(row[u], row[v]) for u, v in graph.edges()], np.int64).reshape(-1, 2).T
    weights = _weights([value for _, _, value in graph.edges(data=weight)], weight)
    per_node = {name: [graph.nodes[node].get(name) for node in nodes] for name in (label, split)}
    if not graph.is_directed():
        # Both directions, with one weight: `undirected` of `save_graph` would merge parallel edges.
        back = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, back]], 1)
        weights = None if weights is None else np.concatenate([weights, weights[back]])
    return save_graph(
        path,
        ends,
        _attributes(graph, nodes, features),
        _labels(per_node[label]),
        _all_or_none(per_node[split]),
        edge_weight=weights,
        num_nodes=len(nodes),
        **more,
    )


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
