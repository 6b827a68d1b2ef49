"""Tables of text: edge lists, and the features, labels and splits that lie beside them.

Text formats never say what they are, so separator, comments and a heading are recognised from the first lines. pandas
does the parsing (an extra, since most users never import text): it is the one parser here that is fast enough for 10^8
lines.
"""

import gzip
import re
import tokenize
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError

COMMENTS = ("#", "%")
SPLIT_WORDS = {"train": 1, "training": 1, "val": 2, "valid": 2, "validation": 2, "test": 3, "testing": 3,
               "": 0, "none": 0, "nan": 0, "0": 0, "1": 1, "2": 2, "3": 3}


@dataclass(frozen=True)
class TableOptions:
    """Files beside an edge list or matrix, the meaning of its columns, and whether node ids are to be renumbered."""

    features: Path | None = None
    labels: Path | None = None
    splits: Path | None = None
    node_types: Path | None = None
    edge_columns: tuple | None = None
    relabel: bool = False

    def refuse(self, format_name):
        """FormatError if anything is set, for formats that carry their own tables."""
        if self != TableOptions():
            raise FormatError(f"--features, --labels, --splits, --node-types, --edge-columns and --relabel are for edge "
                              f"lists and Matrix Market; {format_name} has its own arrays")


def _pandas():
    try:
        import pandas
    except ImportError as error:
        raise FormatError("reading text tables needs pandas: pip install 'hpcgnn[import]'") from error
    return pandas


def read_frame(path, header=None):
    """A pandas DataFrame of a text table. header: True/False, or None to recognise a heading by its words.

    Separator: comma, tab or other white space. Lines that begin with # or % before the first row are comments, and so
    is what follows a # anywhere. An empty table has no columns.
    """
    pandas = _pandas()
    path = Path(path)
    try:
        skip, first = _first_row(path, blank_is_row=header is False)
        if not first:
            return pandas.DataFrame()
        separator = "," if "," in first else "\t" if "\t" in first.strip() else r"\s+"
        fields = re.split(r"\s+" if separator == r"\s+" else separator, first.strip())
        single = len(fields) == 1
        if header is None:
            header = not any(_is_number(field) for field in fields)
        return pandas.read_csv(path, sep="," if single else separator, skiprows=skip, header=0 if header else None,
                               comment="#", skipinitialspace=True, skip_blank_lines=not single)
    except FileNotFoundError as error:
        raise FormatError(f"no table at {path}") from error
    except (ValueError, OSError, EOFError, OverflowError, zlib.error) as error:
        raise FormatError(f"{path} is not a readable table: {error}") from error


def _first_row(path, blank_is_row):
    """(number of lines before it, text) of the first line that is no comment; text is empty for a file without one."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
        for skip, line in enumerate(lines):
            if (line.strip() or blank_is_row) and not line.lstrip().startswith(COMMENTS):
                return skip, line
    return 0, ""


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_table(path):
    """(ids or None, values 2-D array, heading or None) of a .npy array or a text table.

    ids: the first column where its heading is id, node or node_id. values keep the order of the file.
    """
    path = Path(path)
    if path.suffix == ".npy":
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # of the header's text
            hint = "; save it again as a plain array, without objects" if "ickle" in str(error) else ""
            raise FormatError(f"{path} is not a readable .npy array: {error}{hint}") from error
        return None, values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
    frame = read_frame(path)
    keyed = len(frame.columns) > 0 and str(frame.columns[0]).strip().lower() in ("id", "node", "node_id")
    ids = frame.iloc[:, 0].to_numpy() if keyed else None
    return ids, frame.iloc[:, 1 if keyed else 0:].to_numpy()


def numeric(values, path):
    """Values as numbers; FormatError naming the table otherwise."""
    if values.dtype.kind in "iufb":
        return values
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path} has an entry that is not a number: {error}") from error


def node_tables(options):
    """({"features" | "labels" | "split" | "node_type": (ids or None, values)} of the tables that were given, names of
    the node types or []). Node types that are words are numbered in their sorted order.
    """
    tables, names = {}, []
    for name, path in (("features", options.features), ("labels", options.labels)):
        if path is not None:
            ids, values = read_table(path)
            tables[name] = ids, numeric(values, path)
    if options.splits is not None:
        ids, values = read_table(options.splits)
        if values.ndim != 2 or values.shape[1] != 1:
            raise FormatError(f"{options.splits} must have one column of splits, got {values.shape[-1]}")
        tables["split"] = ids, _split_codes(values[:, 0], options.splits)
    if options.node_types is not None:
        ids, values = read_table(options.node_types)
        if values.ndim != 2 or values.shape[1] != 1:
            raise FormatError(f"{options.node_types} must have one column of node types, got {values.shape[-1]}")
        values = values[:, 0]
        if values.dtype.kind not in "iuf":
            nothing = values != values
            if nothing.any():
                raise FormatError(f"{options.node_types}: row {int(np.argmax(nothing))} has no node type")
            names, values = np.unique([str(value).strip() for value in values], return_inverse=True)
            names = names.tolist()
        tables["node_type"] = ids, values
    return tables, names


def _split_codes(values, path):
    words = [str(value).strip().lower().removesuffix(".0") for value in values]
    unknown = sorted(set(words) - set(SPLIT_WORDS))
    if unknown:
        raise FormatError(f"{path} has the split {unknown[0]!r}; expected train, val, test or nothing")
    return np.array([SPLIT_WORDS[word] for word in words], np.uint8)


def place_rows(ids, values, num_nodes, what):
    """Rows in node order. Keyed rows go to their node; nodes without a row are NaN (features: an error, as NaN is
    there)."""
    if ids is None:
        return values
    if ids.dtype.kind not in "iu" or (len(ids) and (ids.min() < 0 or ids.max() >= num_nodes)):
        raise FormatError(f"the {what} table has an id outside the nodes 0..{num_nodes - 1}")
    if len(np.unique(ids)) != len(ids):
        raise FormatError(f"the {what} table has two rows for one node")
    if values.dtype == np.uint8:
        placed = np.zeros((num_nodes, *values.shape[1:]), values.dtype)
    else:
        placed = np.full((num_nodes, *values.shape[1:]), np.nan)
    placed[ids] = values
    return placed
