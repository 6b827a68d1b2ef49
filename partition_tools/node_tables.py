"""What lies beside an edge list, one row per node: features, labels, splits, types of nodes."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.progress import Reporter
from partition_tools.tables import TableOptions, numeric, read_table

SPLIT_WORDS = {
    "train": 1,
    "training": 1,
    "val": 2,
    "valid": 2,
    "validation": 2,
    "test": 3,
    "testing": 3,
    "": 0,
    "none": 0,
    "nan": 0,
    "0": 0,
    "1": 1,
    "2": 2,
    "3": 3,
}
_INDEX_FILE = re.compile(r"(?=.*(train|val|test))(?=.*(idx|index|indices|ids|nodes))", re.IGNORECASE)
SPLIT_TABLE = (
    "--splits takes one row per node: train, val, test or nothing. Lists of node ids make such a table with "
    "(echo id,split; sed s/$/,train/ train.txt; sed s/$/,val/ val.txt; sed s/$/,test/ test.txt) > splits.csv"
)


# (the ids that key the rows or None, the rows)
NodeTable = tuple[np.ndarray | None, np.ndarray]


def node_tables(
    options: TableOptions, exact: bool, reporter: Reporter
) -> tuple[dict[str, NodeTable], dict[str, list[str]]]:
    """({"features" | "labels" | "splits" | "node types": (ids or None, values)} of the tables that were given, names of
    types and classes as `RawGraph` has them). Node types and labels that are words are numbered in their sorted order.

    exact: leave ids as they are written (see `tables.exact_ids`).
    """
    tables: dict[str, NodeTable] = {}
    names: dict[str, list[str]] = {}
    if options.features is not None:
        ids, values, heading = read_table(options.features, exact=exact)
        tables["features"] = ids, numeric(values, options.features)
        _say(reporter, options.features, ids, heading, f"{values.shape[1]} features")
    if options.labels is not None:
        ids, values, heading = read_table(options.labels, exact=exact)
        values, words = label_numbers(values, options.labels)
        _check_heading(options.labels, ids, heading, words, reporter)
        names |= {"classes": words} if words else {}
        nothing = np.count_nonzero(values != values) if words else 0
        if nothing:
            reporter.warn(
                f"{options.labels}: {nothing:,} rows have no label: they are empty, or one of NA, NaN, None, "
                "null and the like; a class of such a name needs another"
            )
        tables["labels"] = ids, values
        _say(
            reporter,
            options.labels,
            ids,
            heading,
            f"{values.shape[1]} columns of labels"
            if not words
            else f"labels of {len(words)} classes, numbered in the order of their names; "
            f"{np.count_nonzero(values != values):,} "
            f"rows without",
        )
    if options.splits is not None:
        ids, values, heading = _split_table(options.splits, exact)
        tables["splits"] = ids, _split_codes(values, options.splits, ids is not None or heading is not None)
    if options.node_types is not None:
        ids, values, heading = read_table(options.node_types, exact=exact)
        values = _one_column(values, options.node_types, "node types")
        if values.dtype.kind not in "iuf":
            nothing = values != values
            if nothing.any():
                raise FormatError(f"{options.node_types}: row {int(np.argmax(nothing))} has no node type")
            kinds, values = np.unique([str(value).strip() for value in values], return_inverse=True)
            names["nodes"] = kinds.tolist()
            _check_heading(options.node_types, ids, heading, names["nodes"], reporter)
        tables["node types"] = ids, values
    return tables, names


def _say(reporter: Reporter, path: Path, ids: np.ndarray | None, heading: list[str] | None, what: str) -> None:
    rows = f"rows keyed by {heading[0]}" if ids is not None and heading else "rows in node order"
    reporter.stage(f"{path}: {what}, {rows}")


def _check_heading(
    path: Path, ids: np.ndarray | None, heading: list[str] | None, words: Sequence[str], reporter: Reporter
) -> None:
    """A first line above words is a heading or one of them; which is clear where it names ids, or numbers follow."""
    if not words or ids is not None or heading is None:
        return
    if heading[0] in words:
        raise FormatError(
            f"{path}: the first line, {heading[0]!r}, is taken for a heading but is one of the words below "
            "it; give the column a heading, such as label"
        )
    if heading[0].lower() not in ("label", "labels", "class", "target", "type", "category", "kind", "y"):
        reporter.warn(f"{path}: the first line, {heading[0]!r}, is taken for the heading")


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
        return numeric(np.where(words == "", "nan", words).reshape(values.shape), where), []
    found = np.unique(words[words != ""])
    return np.where(words == "", np.nan, np.searchsorted(found, words)).reshape(values.shape), found.tolist()


def _any_word(texts: np.ndarray) -> bool:
    try:
        np.where(texts == "", "nan", texts).astype(np.float64)
    except ValueError:
        return True
    return False


def _one_column(values: np.ndarray, path: Path, what: str) -> np.ndarray:
    if values.ndim != 2 or values.shape[1] != 1:
        raise FormatError(f"{path} must have one column of {what}, got {values.shape[-1]}")
    return values[:, 0]


def _split_table(path: Path, exact: bool) -> tuple[np.ndarray | None, np.ndarray, list[str] | None]:
    """(ids, values (n,), heading); a first line that is a split is no heading."""
    ids, values, heading = read_table(path, exact=exact, data_words=SPLIT_WORDS)
    if values.ndim == 2 and values.shape[1] != 1:
        raise FormatError(f"{path} must have one column of splits, got {values.shape[1]}; {SPLIT_TABLE}")
    return ids, values[:, 0], heading


def _split_codes(values: np.ndarray, path: Path, described: bool) -> np.ndarray:
    """uint8 (n,): 0 for none, 1 train, 2 val, 3 test. described: the table has a heading."""
    words = [str(value).strip().lower().removesuffix(".0") for value in values]
    found = set(words)
    unknown = sorted(found - set(SPLIT_WORDS))
    numbers = found - {"", "nan"}
    if (
        numbers
        and not described
        and all(word.isdigit() for word in numbers)
        and (unknown or _INDEX_FILE.match(path.name))
    ):
        raise FormatError(f"{path} looks like a list of node ids; {SPLIT_TABLE}")
    if unknown:
        raise FormatError(f"{path} has the split {unknown[0]!r}; expected train, val, test or nothing")
    if len({word.isdigit() for word in numbers}) > 1:
        raise FormatError(
            f"{path} mixes words and numbers ({', '.join(sorted(numbers))}); write train, val, test or nothing"
        )
    if "0" in found and "3" not in found and found <= set("0123") | {"", "nan"}:
        raise FormatError(
            f"{path} has the splits {', '.join(sorted(numbers))}, which could be none, train, val or train, "
            "val, test; write words: train, val, test or nothing"
        )
    return np.array([SPLIT_WORDS[word] for word in words], np.uint8)


def place_rows(ids: np.ndarray | None, values: np.ndarray, num_nodes: int, what: str) -> np.ndarray:
    """Rows in node order. Keyed rows go to their node; nodes without a row have no label and no split.

    FormatError for features or node types, which every node must have.
    """
    if ids is None:
        return values
    if ids.dtype.kind not in "iu" or (len(ids) and (ids.min() < 0 or ids.max() >= num_nodes)):
        raise FormatError(
            f"the {what} table has an id outside the nodes 0..{num_nodes - 1}; for ids that are words or "
            "have gaps use --relabel"
        )
    present = np.zeros(num_nodes, bool)
    present[ids] = True
    if np.count_nonzero(present) != len(ids):
        ordered = np.sort(ids)
        raise FormatError(f"the {what} table has two rows for one node ({ordered[np.argmax(np.diff(ordered) == 0)]})")
    if what == "features" and not present.all():
        raise FormatError(
            f"node {int(np.argmin(present))} has no row in the table of features ({len(ids)} rows for nodes "
            f"0..{num_nodes - 1}); if the ids have gaps, --relabel numbers those that occur, else give each node "
            f"a row"
        )
    if values.dtype == np.uint8:
        placed = np.zeros((num_nodes, *values.shape[1:]), values.dtype)
    else:
        placed = np.full((num_nodes, *values.shape[1:]), np.nan)
    placed[ids] = values
    return placed
