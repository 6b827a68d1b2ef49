"""Matrix Market: the entry in row i and column j is an edge from i to j, its value a weight unless the field is
`pattern`.

The entries are a table between blanks. A matrix stored as symmetric is expanded to both directions, which makes the
graph undirected.
"""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.formats.edgelist import read_edges
from partition_tools.readers.tables.frames import TableFile, open_table
from partition_tools.readers.tables.node_tables import beside
from partition_tools.readers.tables.tables import NodeTables
from partition_tools.readers.tables.text import lines, readable
from partition_tools.workspace.scratch import Scratch

NAME = "mtx"
OPTIONS = NodeTables
FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
SYMMETRIES = ("general", "symmetric")


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.name.removesuffix(".gz").endswith(".mtx")


def read(path: Path, tables: NodeTables, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a sparse square matrix and its tables. Raises FormatError."""
    with readable(path):
        banner = next(lines(path), "").lower().split()
    sizes = open_table(path, heading=True).fields
    field, symmetry = banner[3:] if len(banner) == 5 else ("", "")
    right = banner[:3] == ["%%matrixmarket", "matrix", "coordinate"] and field in FIELDS and symmetry in SYMMETRIES
    if not right or len(sizes) != 3 or not all(map(str.isdigit, sizes)):
        raise FormatError(
            f"{path} begins with {' '.join(banner)[:60]!r}; expected a Matrix Market file of coordinates that are "
            "real, integer or pattern, general or symmetric, and then its numbers of rows, columns and entries"
        )
    rows, columns, count = map(int, sizes)
    if rows != columns:
        raise FormatError(f"{path} holds a matrix of {rows} x {columns}; expected a square one")
    names = ("src", "dst") if field == "pattern" else ("src", "dst", "weight")
    found = read_edges(TableFile(path, names, True, " "), names, (), False, scratch)
    src, dst, weight = np.asarray(found.src), np.asarray(found.dst), found.weight
    if len(src) != count or (count and not 1 <= min(src.min(), dst.min()) <= max(src.max(), dst.max()) <= rows):
        raise FormatError(f"{path} states {count} entries in rows 1..{rows}, and has others: {len(src)} entries")
    if symmetry == "symmetric":
        _check_one_triangle(path, src, dst)
        other = src != dst
        src, dst = np.concatenate([src, dst[other]]), np.concatenate([dst, src[other]])
        weight = None if weight is None else np.concatenate([weight[:], weight[:][other]])
    return beside(RawGraph(src - 1, dst - 1, rows, weight=weight, source=path.name.split(".")[0]), tables, scratch, 1)


def _check_one_triangle(path: Path, src: np.ndarray, dst: np.ndarray) -> None:
    """FormatError for a file that holds an entry and its mirror image."""
    width = int(max(src.max(initial=0), dst.max(initial=0))) + 1
    key = np.sort(np.minimum(src, dst) * np.int64(width) + np.maximum(src, dst))
    twice = key[1:][key[1:] == key[:-1]]
    if len(twice):
        row, column = divmod(int(twice[0]), width)
        raise FormatError(
            f"{path} states that it is symmetric, so that each entry stands for two, but holds row {row}, column "
            f"{column} twice or on both sides; write one triangle, or state general"
        )
