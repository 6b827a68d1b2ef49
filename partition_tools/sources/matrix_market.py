"""Matrix Market: the entry in row i and column j is an edge from i to j, its value a weight unless the field is
`pattern`.

A matrix stored as symmetric is expanded to both directions, which makes the graph undirected.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from hpcgnn.errors import FormatError
from partition_tools.external.scratch import Scratch
from partition_tools.progress import Reporter
from partition_tools.raw import RawGraph
from partition_tools.sources.beside import assemble
from partition_tools.tables import OF_TABLES, TableOptions

NAME = "mtx"


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.name.removesuffix(".gz").endswith(".mtx")


def read(path: Path, tables: TableOptions, reporter: Reporter, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a sparse square matrix and its tables."""
    if tables.edge_columns or tables.relabel or tables.node_ids or tables.heading is not None:
        raise FormatError(
            "--edge-columns, --relabel, --node-ids and --heading are for edge lists; Matrix Market defines "
            "its columns and ids"
        )
    tables.refuse(NAME, OF_TABLES)
    try:
        rows, columns, _, layout, field, symmetry = scipy.io.mminfo(path)
        matrix = scipy.io.mmread(path)
    except (ValueError, OSError, EOFError, OverflowError, zlib.error) as error:
        raise FormatError(f"{path} is not a readable Matrix Market file: {error}") from error
    if layout != "coordinate" or rows != columns or field == "complex":
        raise FormatError(
            f"{path} holds a {layout} {field} matrix of {rows} x {columns}; expected a real or pattern "
            f"square coordinate matrix"
        )
    matrix = scipy.sparse.coo_array(matrix)
    if symmetry != "general":
        _check_one_triangle(path, symmetry, matrix)
    return assemble(
        matrix.row,
        matrix.col,
        tables,
        path.name.split(".")[0],
        reporter,
        scratch,
        weight=None if field == "pattern" else matrix.data,
        num_nodes=rows,
        first=1,
    )


def _check_one_triangle(path: Path, symmetry: str, matrix: Any) -> None:
    """FormatError for a file that holds an entry and its mirror image, both of which the reader has mirrored."""
    key = np.sort(matrix.row.astype(np.int64) * matrix.shape[1] + matrix.col)
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        row, column = divmod(int(key[twice[0]]), matrix.shape[1])
        raise FormatError(
            f"{path} states that it is {symmetry}, so that each entry stands for two, but holds row {row + 1}, column "
            f"{column + 1} twice or on both sides; write one triangle, or state general"
        )
