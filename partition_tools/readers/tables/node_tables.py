"""Tables next to an edge list, one row per node: features, labels, splits, types of nodes."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.frames import is_number
from partition_tools.readers.tables.row_tables import Reading, Table, read_table
from partition_tools.readers.tables.split_tables import SPLIT_WORDS, split_codes
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.readers.tables.values import check_spelling, numeric
from partition_tools.workspace.progress import Reporter

# (the ids that key the rows or None, the rows)
NodeTable = tuple[np.ndarray | None, np.ndarray]


def node_tables(
    options: TableOptions, exact: bool, reporter: Reporter
) -> tuple[dict[str, NodeTable], dict[str, list[str]], dict[str, tuple[str, list[str]]]]:
    """({"features" | "labels" | "splits" | "node types": (ids or None, values)} of the tables that were given, names of
    types and classes, and files and their columns, both as `RawGraph` has them). Node types and labels that are words
    are numbered in their sorted order.

    exact: leave ids as they are written (see `values.ids_of`). The log names the match of each table.
    """
    tables: dict[str, NodeTable] = {}
    names: dict[str, list[str]] = {}
    files: dict[str, tuple[str, list[str]]] = {}

    def read(what: str, path: Path, data_words: Collection[str] = (), **more: bool) -> Table:
        table = read_table(Path(path), Reading(exact, options.rows, reporter), data_words, **more)
        files[what] = str(path), list(table.names or ())
        return table

    if options.features is not None:
        table = read("features", options.features, numbers=True)
        tables["features"] = table.ids, numeric(table.values, options.features)
        reporter.stage(f"{options.features}: {table.values.shape[1]} features, {table.how}")
    if options.labels is not None:
        table = read("labels", options.labels, classes=True)
        values, words = label_numbers(table.values, options.labels)
        _check_heading(options.labels, table, words, reporter)
        names |= {"classes": found} if (found := words or column_names(table.names or [])) else {}
        nothing = np.count_nonzero(values != values) if words else 0
        if nothing:
            reporter.warn(
                f"{options.labels}: {nothing:,} rows have no label: they are empty, or one of NA, NaN, None, "
                "null and the like; a class of such a name needs another"
            )
        tables["labels"] = table.ids, values
        what = f"{values.shape[1]} columns of labels"
        if words:
            what = f"labels of {len(words)} classes, numbered in the order of their names; {nothing:,} rows without"
        reporter.stage(f"{options.labels}: {what}, {table.how}")
    if options.splits is not None:
        table = read("splits", options.splits, SPLIT_WORDS)
        tables["splits"] = table.ids, split_codes(table, options.splits)
        reporter.stage(f"{options.splits}: splits, {table.how}")
    if options.node_types is not None:
        table = read("node types", options.node_types, classes=True)
        values = _one_column(table.values, options.node_types, "node types")
        if values.dtype.kind not in "iuf":
            nothing = values != values
            if nothing.any():
                raise FormatError(f"{options.node_types}: {table.whose(int(np.argmax(nothing)))} has no node type")
            kinds, values = np.unique([str(value).strip() for value in values], return_inverse=True)
            names["nodes"] = kinds.tolist()
            _check_heading(options.node_types, table, names["nodes"], reporter)
        tables["node types"] = table.ids, values
        reporter.stage(f"{options.node_types}: types of nodes, {table.how}")
    return tables, names, files


def _check_heading(path: Path, table: Table, words: Sequence[str], reporter: Reporter) -> None:
    """A first line above words is a heading or one of them; which is clear where it names ids, or numbers follow."""
    if not words or table.ids is not None or table.names is None:
        return
    first = table.names[0]
    if first in words:
        raise FormatError(
            f"{path}: the first line, {first!r}, is taken for a heading but is one of the words below "
            "it; give the column a heading, such as label"
        )
    if first.lower() not in ("label", "labels", "class", "target", "type", "category", "kind", "y"):
        reporter.warn(f"{path}: the first line, {first!r}, is taken for the heading")


def label_numbers(values: np.ndarray, where: str | Path) -> tuple[np.ndarray, list[str]]:
    """(labels as numbers, names of the classes): words become classes in their sorted order; NaN or nothing is none.

    values: (n, C) of anything; names are [] for numbers. Raises FormatError for words in several columns.
    """
    if values.dtype.kind == "S":
        try:
            values = values.astype(str)
        except UnicodeDecodeError as error:
            raise FormatError(f"{where} has a label that is no text: {error}") from error
    if values.dtype.kind not in "OU":
        return values, []
    words = np.array(["" if value != value or value is None else str(value).strip() for value in values.reshape(-1)])
    if values.ndim == 2 and values.shape[1] != 1 and _any_word(words):
        raise FormatError(
            f"{where} has {values.shape[1]} columns of labels, and words in them; expected one column of "
            "classes, or several columns of 0 and 1: leave those that are meant"
        )
    if not _any_word(words):
        check_spelling(where, words)
        return numeric(np.where(words == "", "nan", words).reshape(values.shape), where), []
    found = np.unique(words[words != ""])
    return np.where(words == "", np.nan, np.searchsorted(found, words)).reshape(values.shape), found.tolist()


def column_names(headings: Iterable[object]) -> list[str]:
    """The names of several columns of labels; [] for one column, and unless all headings are distinct words."""
    names = [name if isinstance(name, str) else "" for name in headings]
    return names if 1 < len(names) == len(set(names) - {""}) else []


def _any_word(texts: np.ndarray) -> bool:
    return not all(map(is_number, np.unique(texts[texts != ""]).tolist()))


def _one_column(values: np.ndarray, path: Path, what: str) -> np.ndarray:
    if values.ndim != 2 or values.shape[1] != 1:
        raise FormatError(f"{path} must have one column of {what}, got {values.shape[-1]}")
    return values[:, 0]


def place_rows(
    ids: np.ndarray | None, values: np.ndarray, num_nodes: int, what: str, file: str, own: np.ndarray | None
) -> np.ndarray:
    """Rows in node order. Keyed rows go to their node; nodes without a row have no label and no split.

    what: a name in `RawGraph.tables`; file: of the table; own: the source's names of the nodes, or None. FormatError
    for features or node types, which every node must have.
    """
    if ids is None:
        return values
    if ids.dtype.kind not in "iu" or (len(ids) and (ids.min() < 0 or ids.max() >= num_nodes)):
        raise FormatError(
            f"{file}: the {what} table has an id outside the nodes 0..{num_nodes - 1}; for ids that are words or "
            "have gaps use --relabel"
        )
    present = np.zeros(num_nodes, bool)
    present[ids] = True
    if np.count_nonzero(present) != len(ids):
        ordered = np.sort(ids)
        node = ordered[np.argmax(np.diff(ordered) == 0)]
        raise FormatError(f"{file}: the {what} table has two rows for one node ({node if own is None else own[node]})")
    if what == "features" and not present.all():
        node = int(np.argmin(present))
        raise FormatError(
            f"{file}: node {node if own is None else own[node]} has no row in the table of features ({len(ids)} rows "
            f"for {num_nodes} nodes); if the ids have gaps, --relabel numbers those that occur, else give each node "
            f"a row"
        )
    if present.all():
        placed = np.empty_like(values)
    elif values.dtype == np.uint8:
        placed = np.zeros((num_nodes, *values.shape[1:]), values.dtype)
    else:
        placed = np.full((num_nodes, *values.shape[1:]), np.nan)
    placed[ids] = values
    return placed
