"""Tables next to a file of edges, one row per node: features, labels, splits, types of nodes.

A table that names nodes and is read by position gives every node the data of another, and nothing fails. So rows go by
a column id. They go by position in an array (.npy), in a table of one column, and by `tables.rows=position`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.likely_names import perhaps
from partition_tools.graph.counts import largest, warn_of_gaps
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.tables.frames import is_number, open_table, polars
from partition_tools.readers.tables.node_ids import numbered
from partition_tools.readers.tables.tables import POSITION, NodeTables, TableOptions, map_npy
from partition_tools.readers.tables.values import ids_of, numbers_of, numeric, typed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

#: The words for the three splits.
SPLIT_OF = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
RELABEL = "if the ids have gaps or do not begin with 0, use --relabel"
# Headings above words in a table of one column; any other may be the word of the first node.
_HEADINGS = ("label", "split", "type")


@dataclass
class Table:
    """A table of a graph's nodes. ids: (n,), the node of each row, or None: rows go by position. values: (n, C) in the
    order of the file. names: of the columns of values, or None.
    """

    path: Path
    ids: np.ndarray | None
    values: np.ndarray
    names: list[str] | None = None


def read_table(path: Path, options: NodeTables, exact: bool, reporter: Reporter, numbers: bool = False) -> Table:
    """The `Table` in a .npy array, a Parquet file or a text table. Raises FormatError.

    exact: leave ids as they are written (see `values.ids_of`). numbers: all data are numbers; they are converted block
    by block, so that their texts take little.
    """
    if path.suffix == ".npy":
        values = map_npy(path)
        if values.ndim not in (1, 2):
            raise FormatError(f"{path} has shape {values.shape}, expected a row for each node: (n,) or (n, columns)")
        return Table(path, None, values.reshape(len(values), -1))
    file = open_table(path)
    names = [name.lower() for name in file.names or ()]
    if "" in names or names.count("id") > 1:
        raise FormatError(f"{path} has a column without a name, or two columns id; expected one id, and names")
    if "id" not in names and len(file.fields) > 1 and options.rows != POSITION:
        raise FormatError(
            f"{path} has no column id, and {len(file.fields)} columns ({', '.join(file.fields)[:60]}); call the column "
            "that names the nodes id, or give --set tables.rows=position where rows are in node order"
        )
    key = names.index("id") if "id" in names and len(names) > 1 else None
    keyed = key is not None and options.rows != POSITION
    places = [place for place in range(len(file.fields)) if place != key]
    keys: list[Any] = []
    rows: list[list[np.ndarray]] = []
    for block in file.blocks(reporter) if numbers else [file.frame(reporter)]:
        keys += [block[str(key)]] if keyed else []
        said = [f"{path}, column {file.names[place] if file.names else place + 1}" for place in places]
        columns = ((block[str(place)], text) for place, text in zip(places, said, strict=True))
        each = [numbers_of(*column) if numbers else typed(*column) for column in columns]
        rows.append([part.astype(np.float64) if numbers and file.separator else part for part in each])
    arrays = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    arrays = [each if each.ndim == 2 else each[:, None] for each in arrays]
    values = np.concatenate(arrays, 1) if len(arrays) > 1 else arrays[0] if arrays else np.zeros((0, 0))
    ids = None if not keyed else ids_of(polars().concat(keys), path, exact) if keys else np.zeros(0, np.int64)
    shown = None if file.names is None else [file.names[place] for place in places]
    if shown and len(shown) != values.shape[1]:  # lists have several numbers
        shown = None
    if ids is None and shown and values.dtype == object and len(shown) == 1 and shown[0].lower() not in _HEADINGS:
        raise FormatError(
            f"{path}: {shown[0]!r} may be a heading or the word of the first node; head the column "
            f"{', '.join(_HEADINGS[:-1])} or {_HEADINGS[-1]}"
        )
    reporter.stage(f"{path}: {values.shape[1]} columns, rows {'in node order' if ids is None else 'by their ids'}")
    return Table(path, ids, values, shown)


def beside(raw: RawGraph, options: NodeTables, scratch: Scratch, first: int = 0) -> RawGraph:
    """A graph of edges alone with the tables beside them. Raises FormatError.

    raw: its num_nodes is what the format states, or 0: then the tables decide where they can. So isolated nodes are
    kept, and an edge beyond the last row is an error rather than a node without features. first: the format's number of
    the first node, 0 or 1, in edges and in ids of tables.
    """
    relabel = isinstance(options, TableOptions) and options.relabel
    paths = {"features": options.features, "labels": options.labels, "splits": options.splits}
    tables = {
        what: read_table(path, options, relabel, scratch.reporter, what == "features")
        for what, path in (paths | {"node types": options.node_types}).items()
        if path is not None
    }
    raw.tables = {what: (str(table.path), table.names or []) for what, table in tables.items()}
    for table in tables.values():
        if first and table.ids is not None and table.ids.dtype.kind in "iu":
            table.ids = table.ids - first
    values = _read_values(tables, raw)
    if relabel:
        _relabel(raw, tables, scratch)
    lengths = {name: len(table.values) for name, table in tables.items() if table.ids is None}
    if len(set(lengths.values())) > 1:
        raise FormatError(f"the tables have different numbers of rows: {lengths}")
    if not raw.num_nodes:
        _count(raw, [table.ids for table in tables.values() if table.ids is not None], lengths, scratch.reporter)
    for name, length in lengths.items():
        if length != raw.num_nodes:
            raise FormatError(f"the table of {name} has {length} rows, expected {raw.num_nodes}, one for each node")
    placed = {name: _placed(table, values[name], raw, name) for name, table in tables.items()}
    raw.features, raw.labels, raw.node_type = (placed.get(name) for name in ("features", "labels", "node types"))
    if "splits" in placed:
        raw.split = {name: placed["splits"] == value for name, value in SPLITS.items()}
    return raw


def _read_values(tables: dict[str, Table], raw: RawGraph) -> dict[str, np.ndarray]:
    """{table: its values as numbers}; names of classes and of types go to `raw`."""
    found = {}
    for what, table in tables.items():
        found[what] = table.values
        if what == "features":
            found[what] = numeric(table.values, table.path)
        elif what == "labels":
            found[what], words = label_numbers(table.values, table.path)
            raw.type_names |= {"classes": names} if (names := words or column_names(table.names or [])) else {}
        elif table.values.shape[1] != 1:
            raise FormatError(f"{table.path} must have one column of {what}, got {table.values.shape[1]}")
        elif what == "splits":
            found[what] = split_codes(table.values[:, 0], table.path)
    return found


def split_codes(values: np.ndarray, where: object) -> np.ndarray:
    """uint8 (n,) of a word for each node: 0 for none, 1 train, 2 val, 3 test. Raises FormatError for another word."""
    words = ["" if value is None or value != value else str(value).strip().lower() for value in values.tolist()]
    unknown = sorted(set(words) - set(SPLIT_OF) - {"", "none"})
    if unknown:
        near = perhaps(unknown[0], SPLIT_OF)
        raise FormatError(f"{where} has the split {unknown[0]!r}; expected train, val, test or nothing{near}")
    return np.array([SPLITS[SPLIT_OF[word]] if word in SPLIT_OF else 0 for word in words], np.uint8)


def label_numbers(values: np.ndarray, where: str | Path) -> tuple[np.ndarray, list[str]]:
    """(labels as numbers, names of the classes): words become classes in their sorted order; NaN or nothing is none.

    values: (n, C) of anything; names are [] for numbers. Raises FormatError for words in several columns.
    """
    if values.dtype.kind not in "OUS":
        return values, []
    words = np.array(["" if value != value or value is None else _text(value) for value in values.reshape(-1).tolist()])
    found = np.unique(words[words != ""])
    if all(map(is_number, found.tolist())):
        return numeric(np.where(words == "", "nan", words).reshape(values.shape), where), []
    if values.ndim == 2 and values.shape[1] != 1:
        raise FormatError(
            f"{where} has {values.shape[1]} columns of labels, and words in them; expected one column of classes, or "
            "several columns of 0 and 1"
        )
    return np.where(words == "", np.nan, np.searchsorted(found, words)).reshape(values.shape), found.tolist()


def _text(word: Any) -> str:
    return (word.decode(errors="replace") if isinstance(word, bytes) else str(word)).strip()


def column_names(headings: Iterable[object]) -> list[str]:
    """The names of several columns of labels; [] for one column, and unless all headings are distinct words."""
    names = [name if isinstance(name, str) else "" for name in headings]
    return names if 1 < len(names) == len(set(names) - {""}) else []


def _count(raw: RawGraph, keyed: list[np.ndarray], lengths: dict[str, int], reporter: Reporter) -> None:
    """Decide the number of nodes: the rows of a table, else the largest id."""
    src, dst = np.asarray(raw.src), np.asarray(raw.dst)
    if not (lengths or keyed or len(src)):
        raise FormatError(f"{raw.source} has no edges, and no table says which nodes there are")
    top = largest(src, dst)
    if not lengths:
        raw.num_nodes = max(top, largest(*keyed)) + 1
        warn_of_gaps((src, dst, *keyed), raw.num_nodes, RELABEL, reporter)
        return
    name, raw.num_nodes = next(iter(lengths.items()))
    if top >= raw.num_nodes:
        edge = int(np.argmax((src >= raw.num_nodes) | (dst >= raw.num_nodes)))
        raise FormatError(
            f"edge {edge} joins {src[edge]} and {dst[edge]}, outside the nodes 0..{raw.num_nodes - 1}: the "
            f"table of {name} has {raw.num_nodes} rows; {RELABEL}, with a column id in the tables"
        )


def _relabel(raw: RawGraph, tables: dict[str, Table], scratch: Scratch) -> None:
    """Number the nodes by the sorted order of their ids, over edges and keyed tables."""
    keyed = {name: table.ids for name, table in tables.items() if table.ids is not None}
    ends = {"sources": np.asarray(raw.src), "destinations": np.asarray(raw.dst)}
    raw.ids, places = numbered(ends, keyed, scratch)
    for name, table in tables.items():
        if table.ids is None and not np.array_equal(raw.ids, np.arange(len(table.values))):
            raise FormatError(
                f"with --relabel the table of {name} does not say which node a row belongs to; give it a column id"
            )
        table.ids = places.get(name)
    raw.src, raw.dst, raw.num_nodes = places["sources"], places["destinations"], len(raw.ids)


def _placed(table: Table, values: np.ndarray, raw: RawGraph, what: str) -> np.ndarray:
    """Rows in node order. Keyed rows go to their node; nodes without a row have no label and no split. FormatError for
    features or node types, which every node must have.
    """
    ids, n = table.ids, raw.num_nodes
    if ids is None:
        return values
    if ids.dtype.kind not in "iu" or (len(ids) and (ids.min() < 0 or ids.max() >= n)):
        raise FormatError(
            f"{table.path}: the {what} table has an id outside the nodes 0..{n - 1}; for ids that are words or have "
            "gaps use --relabel"
        )
    rows = np.bincount(ids.astype(np.int64), minlength=n)

    def own(node: int) -> object:
        return node if raw.ids is None else raw.ids[node]

    if (rows > 1).any():
        node = own(int(np.argmax(rows > 1)))
        raise FormatError(f"{table.path}: the {what} table has two rows for one node ({node}); leave one of them")
    if what in ("features", "node types") and not rows.all():
        raise FormatError(
            f"{table.path}: node {own(int(np.argmin(rows)))} has no row in the table of {what} ({len(ids)} rows for "
            f"{n} nodes); if the ids have gaps, --relabel numbers those that occur, else give each node a row"
        )
    none = 0 if rows.all() or values.dtype == np.uint8 else np.nan
    placed = np.full((n, *values.shape[1:]), none, values.dtype if none == 0 else np.float64)
    placed[ids] = values
    return placed
