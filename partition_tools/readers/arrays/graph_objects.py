"""The arrays in the graph objects of PyG and SciPy, by the names that our readers know."""

from collections.abc import Mapping
from typing import Any

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
