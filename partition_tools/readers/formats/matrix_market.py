"""Matrix Market: the entry in row i and column j is an edge from i to j, its value a weight unless the field is
`pattern`.

A matrix stored as symmetric is expanded to both directions, which makes the graph undirected.
"""

import gzip
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.tables.node_tables import beside
from partition_tools.readers.tables.tables import NodeTables
from partition_tools.readers.tables.text import blocks, lines
from partition_tools.workspace.scratch import Scratch

NAME = "mtx"
OPTIONS = NodeTables
NUMBERS = b"0123456789+-.eE \t\r\n"


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.name.removesuffix(".gz").endswith(".mtx")


def read(path: Path, tables: NodeTables, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a sparse square matrix and its tables."""
    try:
        rows, columns, _, layout, field, symmetry = scipy.io.mminfo(_plain(path))
        _check_entries(path, layout, field)
        matrix = scipy.io.mmread(_plain(path))
    except (ValueError, OSError, EOFError, OverflowError, zlib.error) as error:
        raise FormatError(f"{path} is not a readable Matrix Market file: {error}") from error
    if layout != "coordinate" or rows != columns or field == "complex":
        raise FormatError(
            f"{path} holds a {layout} {field} matrix of {rows} x {columns}; expected a real or pattern "
            f"square coordinate matrix"
        )
    matrix = scipy.sparse.coo_array(matrix)
    if symmetry == "skew-symmetric" and (matrix.row == matrix.col).any():
        raise FormatError(f"{path} states that it is skew-symmetric, but has an entry on the diagonal")
    if symmetry != "general":
        _check_one_triangle(path, symmetry, matrix)
    weight = None if field == "pattern" else matrix.data
    raw = RawGraph(matrix.row, matrix.col, rows, weight=weight, source=path.name.split(".")[0])
    return beside(raw, tables, scratch, first=1)


def _plain(path: Path) -> Any:
    """The path, or its text where a byte order mark would stop SciPy."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        marked = file.read(3) == b"\xef\xbb\xbf"
    return io.BytesIO("".join(lines(path)).encode()) if marked else path


def _check_entries(path: Path, layout: str, field: str) -> None:
    """FormatError for what SciPy would leave out, or crash at: other characters than those of numbers, and values of a
    pattern or of an entry at the end.
    """
    counts = first = last = b""
    for block in blocks(path):
        odd = block.translate(None, NUMBERS)
        if odd:
            raise FormatError(f"{path} has {odd[:20].decode(errors='replace')!r} among its entries, expected numbers")
        if not counts:
            counts, first, *_ = [*block.split(b"\n", 2), b""]
        last = block.rstrip().rpartition(b"\n")[2]
    if field == "pattern" and len(first.split()) > 2:
        raise FormatError(f"{path} states that it is a pattern, but its entries have values; state real")
    width = 1 + (field == "complex") if layout == "array" else {"pattern": 2, "complex": 4}.get(field, 3)
    if last != counts and (len(last.split()) != width or not all(map(_is_number, last.split()))):
        raise FormatError(f"{path} ends with {last.decode()!r}, expected {width} numbers")


def _is_number(word: bytes) -> bool:
    try:
        return np.isfinite(float(word)).item()
    except ValueError:
        return False


def _check_one_triangle(path: Path, symmetry: str, matrix: Any) -> None:
    """FormatError for a file that holds an entry and its mirror image: the reader has mirrored both."""
    key = np.sort(matrix.row.astype(np.int64) * matrix.shape[1] + matrix.col)
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        row, column = divmod(int(key[twice[0]]), matrix.shape[1])
        raise FormatError(
            f"{path} states that it is {symmetry}, so that each entry stands for two, but holds row {row + 1}, column "
            f"{column + 1} twice or on both sides; write one triangle, or state general"
        )
