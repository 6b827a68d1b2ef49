"""Graph files from the graph objects of other libraries: PyG's and SciPy's.

The named arrays of PyG go through the reader of archives (`named_arrays.py`). So both refuse arrays that would be lost,
in the same words. None of the libraries is imported: the caller's object brings its library.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.graphfile.schema import GraphData
from partition_tools.interface.arrays import Saving, save_graph, saving_of, write_raw
from partition_tools.readers.arrays.graph_objects import entries_of, named_of_pyg
from partition_tools.readers.arrays.named_arrays import ArrayOptions, graph_of, in_memory
from partition_tools.workspace.progress import ScriptReporter


def from_pyg(
    data: Any, path: str | Path, *, ignore: Sequence[str] = (), split_column: int | None = None, **saving: Any
) -> GraphData:
    """Write a `Data` or `HeteroData` object of PyG as a graph file.

    The file gets edge_index, x, y, the masks, edge_weight, edge_attr (features of edges), edge_type and node_type. The
    types of nodes of HeteroData follow one another. All have the columns of the widest, with zeros after their own
    (`joined_types`). Errors: see `save_graph`; other tensors are an error too.

    Args:
        data: the object.
        path: the graph file.
        ignore: names of other tensors to leave out, such as edge_label.
        split_column: the split, if masks have a column for each of several.
        saving: see `save_graph`.
    """
    if not hasattr(data, "to_dict"):
        raise FormatError(f"expected a Data object of PyG, got {type(data).__name__}; of a data set give dataset[0]")
    how = saving_of(saving)
    return save_named("PyG data", named_of_pyg(data, how.reporter), path, how, ignore, split_column)


def save_named(
    what: str,
    arrays: Mapping[str, Any],
    path: str | Path,
    how: Saving,
    ignore: Sequence[str],
    split_column: int | None = None,
) -> GraphData:
    """Write a graph of named arrays as a graph file. what: its name in errors."""
    options = ArrayOptions((ignore,) if isinstance(ignore, str) else tuple(ignore), split_column)
    raw = graph_of(what, in_memory(arrays), options, how.reporter)
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
    **more: Any,
) -> GraphData:
    """Write a sparse square matrix as a graph file: the entry in row i and column j is an edge from i to j.

    weighted: whether entries are weights (None: unless all of them are 1). The rest is as of `save_graph`.
    """
    if not hasattr(matrix, "tocoo"):
        raise FormatError(f"expected a sparse matrix of SciPy, got {type(matrix).__name__}")
    rows, columns = matrix.shape
    if rows != columns or matrix.dtype.kind == "c":
        raise FormatError(f"expected a square matrix of real numbers, got {rows} x {columns} of {matrix.dtype}")
    if given := [name for name in ("edge_index", "edge_weight", "num_nodes") if name in more]:
        raise ConfigError(f"the matrix says its {given[0]} itself; leave the argument out")
    entries = entries_of(matrix, more.get("reporter") or ScriptReporter())
    if weighted is None:
        weighted = bool((entries.data != 1).any())
    weight = entries.data if weighted else None
    ends = np.stack([entries.row, entries.col])
    return save_graph(path, ends, features, labels, split, edge_weight=weight, num_nodes=rows, **more)
