"""Files of `torch.save` with a graph of PyG: a `Data` object, processed/data.pt of a data set, or a dict of tensors.

PyG is not needed: empty classes of ours stand in for its classes, and hold their attributes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.in_memory import InMemory
from partition_tools.readers.arrays.joined_types import joined
from partition_tools.readers.arrays.named_arrays import graph_of
from partition_tools.readers.arrays.torch_file import load_torch_file
from partition_tools.readers.tables.tables import OF_ARCHIVES, TableOptions
from partition_tools.workspace.scratch import Scratch

NAME = "pyg"


class _Data:
    """In place of PyG's Data."""


class _Hetero:
    """In place of PyG's HeteroData."""


class _Part:
    """A stand-in for the classes inside a Data object."""


_STANDING_IN = {
    "torch_geometric.data.data.Data": _Data,
    "torch_geometric.data.hetero_data.HeteroData": _Hetero,
    **{
        f"torch_geometric.data.{name}": type(name.rpartition(".")[2], (_Part,), {})
        for name in (
            "data.DataTensorAttr",
            "data.DataEdgeAttr",
            "graph_store.EdgeLayout",
            "graph_store.EdgeAttr",
            "feature_store.TensorAttr",
            "storage.BaseStorage",
            "storage.GlobalStorage",
            "storage.NodeStorage",
            "storage.EdgeStorage",
        )
    },
}


_SEVERAL = "{} holds several graphs, expected one: torch.save(dataset[0], 'one.pt')"


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.suffix in (".pt", ".pth")


def read(path: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a file. FormatError for one that could run code; nothing of it has run."""
    tables.refuse(NAME, OF_ARCHIVES)
    remedy = "; where you trust the file, load it in Python, and save it by partition_tools.from_pyg(data, 'graph.h5')"
    found = load_torch_file(path, _STANDING_IN, remedy)
    return graph_of(InMemory(str(path), _named(path, found, scratch)), tables, scratch.reporter)


def _named(path: Path, found: Any, scratch: Scratch) -> dict[str, Any]:
    """{name: array} of a file's content. Raises FormatError."""
    if isinstance(found, tuple | list) and found:  # a data set: the graphs one after another, and where each begins
        slices = found[1] if len(found) > 1 else None
        if isinstance(slices, Mapping) and any(len(ends) > 2 for ends in slices.values() if hasattr(ends, "__len__")):
            raise FormatError(_SEVERAL.format(path))
        if any(isinstance(other, _Data | _Hetero) for other in found[1:]):
            raise FormatError(_SEVERAL.format(path))
        found = found[0]
    if isinstance(found, _Hetero):
        stores = vars(found)
        nodes, edges = (
            {key: _contents(store) for key, store in stores[name].items()}
            for name in ("_node_store_dict", "_edge_store_dict")
        )
        return joined(str(path), nodes, edges, scratch.reporter, scratch)
    if isinstance(found, _Data):
        inside = vars(found)
        found = _contents(inside["_store"]) if "_store" in inside else inside
    if not isinstance(found, Mapping):
        raise FormatError(f"{path} holds a {type(found).__name__}, expected a Data object of PyG or a dict of tensors")
    return {str(name): value for name, value in found.items() if value is not None and not str(name).startswith("_")}


def _contents(store: Any) -> dict[str, Any]:
    """The content of a part of a Data object."""
    return {name: value for name, value in vars(store).get("_mapping", {}).items() if value is not None}
