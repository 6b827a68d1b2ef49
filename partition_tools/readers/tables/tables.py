"""The options of tables, and single arrays in .npy files."""

import tokenize
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.workspace.settings import check_choices, key, names, truth

BY_ID, POSITION = "id", "position"


def _columns_or_file(text: str) -> Path | tuple[str, ...]:
    return Path(text) if text.endswith(".npy") else names(text)


@dataclass(frozen=True)
class NoOptions:
    """Of a format that is read whole."""


@dataclass(frozen=True)
class NodeTables:
    """Tables with a row for each node, beside a file of edges."""

    features: Path | None = key("tables.features", None, "table of features: a row of numbers for each node", Path)
    labels: Path | None = key("tables.labels", None, "table of labels: classes, several of 0/1, or numbers", Path)
    splits: Path | None = key("tables.splits", None, "table of splits: train, val, test or nothing", Path)
    node_types: Path | None = key("tables.node_types", None, "table of types of nodes: numbers from 0, or words", Path)
    rows: str = key(
        "tables.rows", BY_ID, "rows belong to nodes by a column id, or by position", choices=(BY_ID, POSITION)
    )

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class TableOptions(NodeTables):
    """Options of an edge list and of the tables beside it."""

    columns: tuple[str, ...] | None = key(
        "edges.columns", None, "columns of the edge list: src, dst, weight, type, feature, _ (ignored)", names
    )
    heading: bool | None = key(
        "edges.heading", None, "whether its first row names the columns (default: if it has no number)", truth
    )
    edge_features: Path | tuple[str, ...] | None = key(
        "edges.features",
        None,
        "its columns with features of edges, or a .npy file with a row for each",
        _columns_or_file,
    )
    relabel: bool = key("tables.relabel", False, "ids are any numbers or words; nodes are in their sorted order", truth)


def map_npy(path: str | Path) -> np.ndarray:
    """The array of a .npy file, mapped and read-only. FormatError, with a remedy, if it is damaged or pickled."""
    try:
        return np.load(path, "r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # of the header's text
        hint = "; save it again as a plain array, without objects" if "ickle" in str(error) else ""
        raise FormatError(f"{path} is not a readable .npy array: {error}{hint}") from error
