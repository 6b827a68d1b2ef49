"""Sparse matrices of SciPy's `save_npz`: the entry in row i and column j is an edge from i to j.

Its value is a weight unless all are 1. Features, labels and splits come from tables, as for Matrix Market.
"""

import contextlib
import zipfile
import zlib
from pathlib import Path

import scipy

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.graph_objects import entries_of
from partition_tools.readers.tables.node_tables import beside
from partition_tools.readers.tables.tables import NodeTables
from partition_tools.workspace.scratch import Scratch

NAME = "scipy"
OPTIONS = NodeTables


def matches(path: Path) -> bool:
    """Whether a path looks like this format: by the members of the archive, since numpy's have the same suffix."""
    if path.suffix != ".npz" or not path.is_file():
        return False
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    return False


def read(path: Path, tables: NodeTables, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a square matrix and its tables. Pickled arrays are refused."""
    try:
        with open(path, "rb") as file:
            matrix = scipy.sparse.load_npz(file)
    except (ValueError, OSError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise FormatError(f"{path} is not a readable matrix of scipy.sparse.save_npz: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind == "c":
        raise FormatError(f"{path} holds a {matrix.dtype} matrix of {matrix.shape}; expected a real square one")
    entries = entries_of(matrix, scratch.reporter)
    weight = entries.data if (entries.data != 1).any() else None
    scratch.reporter.stage(f"{path}: an entry in row i and column j is an edge from i to j")
    return beside(RawGraph(entries.row, entries.col, matrix.shape[0], weight=weight, source=path.stem), tables, scratch)
