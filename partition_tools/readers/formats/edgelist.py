"""Edge lists in text and in Parquet: a source, a destination and perhaps a weight or a type in each row.

A large file goes block by block into arrays of the scratch directory. A file with words as ids is parsed at once.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.tables.frames import TableFile, open_table
from partition_tools.readers.tables.node_tables import beside
from partition_tools.readers.tables.tables import TableOptions, map_npy
from partition_tools.readers.tables.text import lines, readable
from partition_tools.readers.tables.values import ids_of, numbers_of, typed
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import key_of

if TYPE_CHECKING:
    import polars as pl

NAME = "edgelist"
OPTIONS = TableOptions
SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist")
ENDS = ("src", "dst")
#: Names of columns by their meaning; of feature and _ (ignored) there may be several.
_ROLES = {word: word for word in (*ENDS, "weight", "type", "_")} | {"source": "src", "target": "dst"}
_MEANINGS = (*ENDS, "weight", "type", "feature", "_")
_DTYPES = {"weight": np.float64, "edge_features": np.float64}
_SAY = (
    "say what each is: --set edges.columns={} (src, dst, weight, type, feature, or _ to leave one out). Ids of two "
    "kinds, such as users and movies, need a prefix each (u1, m1), and --relabel"
)


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_file() and (path.suffix == ".parquet" or path.name.removesuffix(".gz").endswith(SUFFIXES))


def read(path: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of an edge list and its tables. Raises FormatError naming the column that is wrong."""
    file = open_table(path, tables.heading)
    with readable(path):
        if file.separator and next(lines(path), "").split()[:2] == ["%", "bip"]:
            raise FormatError(f"{path}: % bip, its columns name nodes of two kinds; {_SAY.format('src,dst')}")
    names = _columns(file, tables)
    wanted = tables.edge_features if isinstance(tables.edge_features, tuple) else ()
    places = [place for place, name in enumerate(names) if name == "feature"]
    if wanted and file.names is not None:
        places = [file.names.index(name) for name in wanted]
    raw = read_edges(file, names, places, tables.relabel, scratch)
    if file.separator and file.heading and tables.heading is None and raw.src.dtype.kind == "U" and tables.columns:
        raise FormatError(
            f"{path}: the first line ({', '.join(file.fields)}) may be a heading or an edge between words; say "
            "--set edges.heading=true or false"
        )
    if isinstance(tables.edge_features, Path):
        raw.edge_features = map_npy(tables.edge_features)
    raw.source = path.name.split(".")[0]
    return beside(raw, tables, scratch)


def read_edges(file: TableFile, names: Sequence[str], places: Sequence[int], exact: bool, scratch: Scratch) -> RawGraph:
    """A graph of edges alone.

    names: a meaning for each column; places: of the features. exact: see `values.ids_of`. Those of a large file are
    mapped. Raises FormatError naming the faulty edge.
    """

    def convert(frame: "pl.DataFrame", first: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place, name in enumerate(names):
            column, where = frame[str(place)], f"{file.path}: column {file.names[place] if file.names else place + 1}"
            if name in ENDS:
                found[name] = ids_of(column, where, exact, "edge", first)
            elif name in ("weight", "type"):
                found[name] = numbers_of(column, where) if name == "weight" else typed(column, where)
        if places:
            where = f"{file.path}: feature of edges, from edge {first}"
            found["edge_features"] = np.stack([numbers_of(frame[str(place)], where) for place in places], 1)
        return found

    if not file.fields:
        return RawGraph(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    if not file.is_large(scratch):
        return RawGraph(num_nodes=0, **convert(file.frame(scratch.reporter), 0))
    key = f"source/{key_of(file.path)}"
    wanted = [name for name in names if name not in ("_", "feature")] + (["edge_features"] if places else [])
    first = 0
    try:
        with contextlib.ExitStack() as stack:
            append = {
                name: stack.enter_context(scratch.appending(f"{key}-{name}", _DTYPES.get(name, np.int64)))
                for name in wanted
            }
            for frame in file.blocks(scratch.reporter, scratch.memory):
                for name, values in convert(frame, first).items():
                    if name not in _DTYPES and values.dtype.kind != "i":
                        raise _NotIntegersError
                    append[name](values.reshape(-1))
                first += len(frame)
    except _NotIntegersError:
        scratch.reporter.stage(f"{file.path}: ids or types are no plain numbers, so that it is read at once")
        return RawGraph(num_nodes=0, **convert(file.frame(scratch.reporter), 0))
    columns: dict[str, Any] = {name: scratch.load(f"{key}-{name}") for name in wanted}
    if places:
        columns["edge_features"] = columns["edge_features"].reshape(-1, len(places))
    return RawGraph(num_nodes=0, **columns)


class _NotIntegersError(Exception):
    """Ids or types that need the whole column: words, both 01 and 1, more than 63 bits."""


def _columns(file: TableFile, tables: TableOptions) -> tuple[str, ...]:
    """The meaning of each column: of edges.columns, of the heading, or src and dst. Raises FormatError."""
    shown = f"{file.path} has the columns {', '.join(file.fields)[:80]}"
    features = tables.edge_features if isinstance(tables.edge_features, tuple) else ()
    names = tables.columns
    roles = ["feature" if name in features else _ROLES.get(name.lower(), "") for name in file.names or file.fields]
    free = iter([end for end in ENDS if end not in roles])
    say = _SAY.format(",".join(role or next(free, "_") for role in roles))
    if features and (names is not None or file.names is None):
        raise FormatError(f"edges.features: expected columns by their names in a heading; {shown}, else {say}")
    if names is None and file.names is not None:
        if missing := [name for name in features if file.names.count(name) != 1]:
            raise FormatError(f"edges.features: expected a column {missing[0]}; {shown}")
        if "" in roles:
            raise FormatError(f"{shown}, and {file.names[roles.index('')]!r} is not known; {say}")
        names = tuple(roles)
    if names is None:
        names = ENDS if len(file.fields) in (0, 2) else ()
    once = [name for name in names if name not in ("_", "feature")]
    if set(names) - set(_MEANINGS) or set(ENDS) - set(names) or len(set(once)) != len(once):
        raise FormatError(f"{shown}; expected src and dst, and perhaps weight and type, each once; {say}")
    if file.fields and len(names) != len(file.fields):
        raise FormatError(f"{shown}, expected {len(names)} ({','.join(names)}); {say}")
    return names
