"""Edge lists in text and in Parquet: a source, a destination and perhaps a weight or a type in each row.

A large file goes block by block into arrays of the scratch directory. A file with words as ids is parsed at once.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import warn_of_two_kinds
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import map_npy
from partition_tools.readers.formats.edges_with_tables import assemble
from partition_tools.readers.tables.frames import TableFile, open_table
from partition_tools.readers.tables.headings import COLUMNS, ENDS, columns_of, named_ends, names_ends, said
from partition_tools.readers.tables.tables import OF_TABLES, TableOptions
from partition_tools.readers.tables.text import lines, readable
from partition_tools.readers.tables.values import ids_of, numbers_of, typed
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import key_of

if TYPE_CHECKING:
    import polars as pl

NAME = "edgelist"
SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist")
_DTYPES = {"weight": np.float64, "features": np.float64}


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_file() and (path.suffix == ".parquet" or path.name.removesuffix(".gz").endswith(SUFFIXES))


def read(path: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of an edge list and its tables. Raises FormatError naming the column that is wrong."""
    tables.refuse(NAME, (*OF_TABLES, "edge_columns", "edge_features", "relabel", "node_ids", "heading"))
    exact = tables.relabel or tables.node_ids is not None
    if tables.edge_columns:
        _check_names(tables.edge_columns)
    file = open_table(path, tables.heading, names_ends)
    if file.separator:
        _refuse_bipartite(path)
    names = _columns(file, tables)
    places = _feature_places(names, file.names, tables)
    columns = read_edges(file, names, places, exact, scratch)
    if file.fields:
        scratch.reporter.stage(f"{path}: {said(names, file.names)}")
    words = any(columns[end].dtype.kind == "U" for end in ENDS)
    guessed = file.separator and file.heading and tables.heading is None and not names_ends(file.fields)
    if guessed and words:
        raise FormatError(
            f"{path}: the first line ({', '.join(file.fields)}) may be a heading or an edge between words; say "
            "--heading or --no-heading"
        )
    features = columns.get("features")
    if isinstance(tables.edge_features, Path):
        features = map_npy(tables.edge_features, scratch)
    raw = assemble(
        columns["src"],
        columns["dst"],
        tables,
        path.name.split(".")[0],
        scratch,
        weight=columns.get("weight"),
        kind=columns.get("type"),
        edge_features=features,
    )
    if ends := named_ends(names, file.names):
        warn_of_two_kinds(raw.src, raw.dst, raw.num_nodes, ends, scratch.reporter)
    return raw


def read_edges(
    file: TableFile, names: Sequence[str], places: Sequence[int], exact: bool, scratch: Scratch
) -> Mapping[str, np.ndarray]:
    """{"src" | "dst": ids, "weight": numbers, "type": integers or words, (E,) each; "features": (E, F)}.

    names: one of `headings.COLUMNS` for each column; places: of the features. exact: see `values.ids_of`. Those of a
    large file are mapped, and a finished array is not made again. Raises FormatError naming the faulty edge.
    """

    def convert(frame: "pl.DataFrame", first: int) -> dict[str, np.ndarray]:
        found = {}
        for place, name in enumerate(names):
            column, where = frame[str(place)], f"{file.path}: column {file.names[place] if file.names else place + 1}"
            if name in ENDS:
                found[name] = ids_of(column, where, exact, "edge", first)
            elif name == "weight":
                found[name] = numbers_of(column, where)
            elif name == "type":
                found[name] = typed(column, where)
        if places:
            rows = [
                numbers_of(frame[str(place)], f"{file.path}: feature of edges, from edge {first}") for place in places
            ]
            found["features"] = np.stack(rows, 1)
        return found

    if not file.fields:
        return dict.fromkeys(ENDS, np.zeros(0, np.int64))
    if not file.is_large(scratch):
        return convert(file.frame(scratch.reporter), 0)
    key = f"source/{key_of(file.path)}"
    wanted = [name for name in names if name not in ("_", "feature")] + (["features"] if places else [])
    if not all(scratch.done(f"{key}-{name}") for name in wanted):
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
            return convert(file.frame(scratch.reporter), 0)
    columns = {name: scratch.load(f"{key}-{name}") for name in wanted}
    if places:
        columns["features"] = columns["features"].reshape(-1, len(places))
    return columns


class _NotIntegersError(Exception):
    """Ids or types that need the whole column: words, both 01 and 1, more than 63 bits."""


def _refuse_bipartite(path: Path) -> None:
    with readable(path):
        if next(lines(path), "").split()[:2] == ["%", "bip"]:
            raise FormatError(
                f"{path}: % bip, its columns name nodes of two kinds, whose equal ids would become one node; expected "
                """other ids in each, and --relabel: awk '!/^%/ {$1 = "u"$1; $2 = "m"$2; print}' FILE > edges.txt"""
            )


def _check_names(names: Sequence[str]) -> None:
    once = [name for name in names if name not in ("_", "feature")]
    if set(names) - set(COLUMNS) or set(ENDS) - set(names) or len(set(once)) != len(once):
        raise FormatError(
            f"--edge-columns must name src and dst, and may name weight and type, each once, and feature and _ "
            f"(ignored); got {','.join(names)}"
        )


def _columns(file: TableFile, tables: TableOptions) -> tuple[str, ...]:
    """One of `COLUMNS` for each column."""
    path, count = file.path, len(file.fields)
    if not count:
        return tables.edge_columns or ENDS
    if count < 2:
        raise FormatError(
            f"{path} has one column ({file.fields[0][:40]}), expected at least a source and a destination, "
            "separated by a comma, a tab or blanks"
        )
    if tables.edge_columns:
        if len(tables.edge_columns) != count:
            raise FormatError(
                f"{path} has {count} columns ({', '.join(file.fields)[:80]}), expected {len(tables.edge_columns)} "
                f"({','.join(tables.edge_columns)}); say what they are with --edge-columns, _ for one to ignore"
            )
        return tables.edge_columns
    if file.names is not None:
        named = tables.edge_features if isinstance(tables.edge_features, tuple) else ()
        return columns_of(file.names, path, named)
    if count == 2:
        return ENDS
    suggestion = ",".join(("src", "dst", "weight", "type", *"_" * count)[:count])
    raise FormatError(
        f"{path} has {count} columns, and no heading says what the third is; say what they are with --edge-columns, "
        f"such as --edge-columns {suggestion} (_: ignored)"
    )


def _feature_places(names: Sequence[str], heading: Sequence[str] | None, tables: TableOptions) -> list[int]:
    """Which columns are features, in the order of --edge-features, else in their own."""
    wanted = tables.edge_features if isinstance(tables.edge_features, tuple) else ()
    marked = [place for place, name in enumerate(names) if name == "feature"]
    if wanted and (heading is None or tables.edge_columns):
        raise FormatError(
            f"--edge-features {','.join(wanted)}: expected columns by their names in a heading; say which they are "
            "with --edge-columns, such as --edge-columns src,dst,feature,feature"
        )
    if marked and isinstance(tables.edge_features, Path):
        raise FormatError(f"--edge-columns names features, and --edge-features the file {tables.edge_features}")
    return [list(heading).index(name) for name in wanted] if heading is not None and wanted else marked
