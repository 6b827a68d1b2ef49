"""A part's graph as DGL's GraphBolt saves it (`fused_csc_sampling_graph.pt`), read without DGL.

Such a file is a pickle of torch with an object of DGL, whose state is tensors: the edges by destination, and data of
nodes and edges by name. Empty classes of ours stand in for the object's, and nothing of the file runs.
"""

from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers.dgl_binary import StoredGraph
from partition_tools.readers.arrays.torch_file import load_torch_file


class _Graph:
    """In place of GraphBolt's class: `_c_csc_graph` is the other object."""


class _TorchScript:
    """In place of an object of TorchScript. held: {name: {name: tensor}}."""

    def __setstate__(self, state: Any) -> None:
        self.held = state[0]


_STANDING_IN = {
    "dgl.graphbolt.impl.fused_csc_sampling_graph.FusedCSCSamplingGraph": _Graph,
    "torch.ScriptObject": _TorchScript,
}


def read_sampling_graph(path: Path) -> StoredGraph:
    """The graph of a part; its edges have "_ID" where ids were stored, and "type" of several. Raises FormatError."""
    found = load_torch_file(path, _STANDING_IN, "; convert the folder with DGL's partition_graph(use_graphbolt=False)")
    try:
        held = found._c_csc_graph.held
        topology = held["independent_tensors"]
        indptr, src = topology["indptr"].numpy(), topology["indices"].numpy()
        nodes, edges = (
            {name: values.numpy() for name, values in held[key].items()}
            for key in ("node_attributes", "edge_attributes")
        )
        kinds = topology.get("type_per_edge")
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is not a FusedCSCSamplingGraph, as DGL 2.1 to 2.5 write it") from error
    if "_ID" not in nodes or len(nodes["_ID"]) != len(indptr) - 1 or indptr[-1] != len(src):
        raise FormatError(f"{path}: expected node ids (_ID) of {len(indptr) - 1} nodes, and {indptr[-1]} edges")
    if kinds is not None:
        edges["type"] = kinds.numpy()
    return StoredGraph(src, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), nodes, edges)
