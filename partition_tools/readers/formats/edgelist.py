"""Edge lists in text: a source, a destination and perhaps a weight, a type or a time per line, as SNAP and others have
them.

A file too large for the memory is parsed in blocks, into arrays of the scratch directory. A file with words as ids is
parsed at once.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.formats.edge_columns import feature_places, graph_of_columns, named_features
from partition_tools.readers.tables.headings import COLUMNS, ENDS, all_known, columns_of, named_ends, names_ends, said
from partition_tools.readers.tables.parts import one_text, parts_of
from partition_tools.readers.tables.tables import OF_TABLES, Layout, TableOptions, layout, numeric, read_frame
from partition_tools.readers.tables.text import lines
from partition_tools.readers.tables.text_blocks import NotPlainNumbers, is_large_table, read_edges
from partition_tools.readers.tables.written_ids import exact_ids
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

if TYPE_CHECKING:
    import pandas as pd


NAME = "edgelist"
SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist")


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    name = path.name.removesuffix(".gz")
    return (path.is_file() and name.endswith(SUFFIXES)) or bool(parts_of(path, SUFFIXES))


def read(path: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of an edge list and its tables. Raises FormatError naming the column that is wrong."""
    tables.refuse(NAME, (*OF_TABLES, "edge_columns", "edge_features", "relabel", "node_ids", "heading"))
    relabel, source = tables.relabel or tables.node_ids is not None, path
    if parts := parts_of(path, SUFFIXES):
        heading_there = layout(parts[0], known=names_ends).heading if tables.heading is None else tables.heading
        path = one_text(parts, heading_there, scratch)
    if tables.edge_columns:
        _check_names(tables.edge_columns)
    shape = layout(path, known=names_ends)
    if next(lines(path), "").split()[:2] == ["%", "bip"]:
        raise FormatError(
            f"{path}: % bip, its columns name nodes of two kinds, whose equal ids would become one node; expected "
            f"other ids in each, and --relabel: zcat -f {shlex.quote(str(path))} | "
            """awk '!/^%/ {$1 = "u"$1; $2 = "m"$2; print}' > edges.txt"""
        )
    if tables.heading is not None:
        shape = replace(shape, heading=tables.heading)
    names, heading = _columns(path, shape, tables)
    places = feature_places(names, heading, tables)
    columns = None
    if shape.fields and is_large_table(path, scratch) and not _is_doubtful(shape, tables, relabel):
        try:
            columns = read_edges(path, shape, names, places, relabel, scratch)
        except NotPlainNumbers:
            scratch.reporter.stage(f"{path}: ids or types are no plain numbers, so that it is read at once")
    if shape.fields:
        scratch.reporter.stage(f"{path}: {said(names, heading)}")
    if columns is None:
        columns = _at_once(path, shape, names, places, heading, tables, relabel, scratch.reporter)
    return graph_of_columns(columns, tables, source.name.split(".")[0], scratch, named_ends(names, heading))


def _is_doubtful(shape: Layout, tables: TableOptions, relabel: bool) -> bool:
    """Whether the first line may be an edge between nodes of such names, which only all ids together can tell."""
    return shape.heading and tables.heading is None and relabel and not names_ends(shape.fields)


def _at_once(
    path: Path,
    shape: Layout,
    names: Sequence[str],
    places: Sequence[int],
    heading: tuple[str, ...] | None,
    tables: TableOptions,
    relabel: bool,
    reporter: Reporter,
) -> dict[str, np.ndarray]:
    """{name: (E,)} of all columns that are read, and {"features": (E, F)} of those at `places`, parsed in memory."""
    frame = read_frame(path, shape=shape, reporter=reporter)
    if (
        tables.edge_columns
        and shape.heading
        and tables.heading is None
        and not names_ends(shape.fields)
        and relabel
        and any(frame.iloc[:, names.index(end)].to_numpy().dtype.kind not in "iuf" for end in ENDS)
    ):
        raise FormatError(
            f"{path}: the first line ({', '.join(shape.fields)}) may be a heading or an edge between words; say "
            "--heading or --no-heading"
        )
    if (
        shape.heading
        and tables.heading is None
        and relabel
        and any(frame.iloc[:, names.index(end)].astype(str).str.strip().isin(shape.fields).any() for end in ENDS)
    ):
        raise FormatError(
            f"{path}: the first line ({', '.join(shape.fields)}) may be a heading or an edge, for its words "
            "are node ids below as well; say --heading or --no-heading"
        )

    def numbers(position: int, name: str) -> np.ndarray:
        column = heading[position] if heading else position + 1
        where = f"{path}: column {column}, taken for the {name} of edges (--edge-columns says otherwise, _ ignores it),"
        return numeric(frame.iloc[:, position].to_numpy(), where) if len(frame) else np.zeros(0)

    columns = {}
    for position, name in enumerate(names):
        if name in ENDS:
            columns[name] = _ids(path, shape, frame, position, name, relabel)
        elif name == "type" and len(frame) and (words := frame.iloc[:, position].to_numpy()).dtype == object:
            columns[name] = words
        elif name not in ("_", "feature"):
            columns[name] = numbers(position, name)
    if places:
        columns["features"] = np.stack([numbers(position, "feature") for position in places], 1)
    return columns


def _check_names(names: Sequence[str]) -> None:
    if (
        set(names) - set(COLUMNS)
        or set(ENDS) - set(names)
        or len(set(names) - {"_", "feature"}) != sum(name not in ("_", "feature") for name in names)
    ):
        raise FormatError(
            f"--edge-columns must name src and dst, and may name weight and type, each once, and feature and _ "
            f"(ignored); got {','.join(names)}"
        )


def _columns(path: Path, shape: Layout, tables: TableOptions) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """(one of `COLUMNS` for each column, the names that stand in the file or None)."""
    others = [name for name in shape.comment if name not in named_features(tables)]
    heading = shape.fields if shape.heading else shape.comment if all_known(others) else None
    if not shape.fields:
        return tables.edge_columns or ENDS, None
    if len(shape.fields) < 2:
        raise FormatError(
            f"{path} has one column ({shape.fields[0][:40]}), expected at least a source and a destination, "
            "separated by a comma, a tab or blanks"
        )
    if tables.edge_columns:
        if len(tables.edge_columns) != len(shape.fields):
            raise FormatError(
                f"{path} has {len(shape.fields)} columns, expected {len(tables.edge_columns)} "
                f"({','.join(tables.edge_columns)}); say what they are with --edge-columns, _ for one to ignore"
            )
        return tables.edge_columns, heading
    if heading is not None:
        return columns_of(heading, path, named_features(tables)), heading
    if len(shape.fields) == 2:
        return ENDS, None
    raise FormatError(
        f"{path} has {len(shape.fields)} columns, and no heading says what the third is; say what they are with "
        f"--edge-columns, such as --edge-columns "
        f"{','.join(('src', 'dst', 'weight', 'type', *'_' * len(shape.fields))[: len(shape.fields)])} (_: "
        "ignored)"
    )


def _ids(path: Path, shape: Layout, frame: "pd.DataFrame", position: int, name: str, relabel: bool) -> np.ndarray:
    if not len(frame):
        return np.zeros(0, np.int64)
    ids = exact_ids(path, shape, frame, position) if relabel else frame.iloc[:, position].to_numpy()
    if ids.dtype.kind in "iuU":
        return ids
    if ids.dtype.kind == "f":
        if not np.isfinite(ids).all():
            raise FormatError(f"{path}: line of edge {int(np.argmin(np.isfinite(ids)))} has no {name}")
        if np.array_equal(ids, np.rint(ids)):
            return ids.astype(np.int64)
    raise FormatError(f"{path}: column {name} holds ids that are not integers; --relabel numbers words and the like")
