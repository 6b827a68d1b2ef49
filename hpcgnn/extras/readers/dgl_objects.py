"""Graphs of DGL in memory, and the names of its data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.extras.readers.renamed import of_dgl
from hpcgnn.graphfile.schema import GraphData
from partition_tools.interface.arrays import saving_of
from partition_tools.interface.libraries import save_named
from partition_tools.readers.arrays.in_memory import as_array
from partition_tools.readers.arrays.joined_types import joined
from partition_tools.workspace.progress import Reporter


def from_dgl(graph: Any, path: str | Path, *, ignore: Sequence[str] = (), **saving: Any) -> GraphData:
    """Write a `DGLGraph` as a graph file.

    The file gets the edges; feat, label and the masks of ndata; the weight (w, weight), the features (feat) and the
    type (etype, type) of edata. Several types are joined, see `from_pyg`. A DGLGraph stores directed edges: an
    undirected graph has both directions. Errors: see `save_graph`; other data are an error too, unless `ignore` names
    them (edge data as edge_NAME). saving: see `save_graph`.
    """
    how = saving_of(saving)
    return save_named("DGL graph", _named(graph, how.reporter), path, how, ignore)


def _named(graph: Any, reporter: Reporter) -> dict[str, Any]:
    """{name: array} of a DGLGraph, of one type of nodes and edges or of several."""
    relations = graph.canonical_etypes
    if len(relations) == 1 and len(graph.ntypes) == 1:
        src, dst = graph.edges()
        ends = {"src": src, "dst": dst, "num_nodes": graph.num_nodes()}
        return {**ends, **of_dgl(graph.ndata), **of_dgl(graph.edata, True)}
    nodes = {kind: {"num_nodes": graph.num_nodes(kind), **of_dgl(graph.nodes[kind].data)} for kind in graph.ntypes}
    for of_type in nodes.values():
        of_type.pop("n_id", None)  # ids within the types, which are not distinct
    edges = {
        relation: {"edge_index": np.stack([as_array(end, "edges") for end in graph.edges(etype=relation)])}
        | of_dgl(graph.edges[relation].data, True)
        for relation in relations
    }
    return joined("DGL graph", nodes, edges, reporter)
