"""The options of reading a source, and single arrays in .npy files."""

import tokenize
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from hpcgnn.errors import ConfigError, FormatError

# The node of each row of a table: by its column id, else by position where nothing may name the nodes; by position; by
# the first column.
AUTO, POSITION, KEYED = "auto", "position", "id"
ROWS = (AUTO, POSITION, KEYED)

# Fields of `TableOptions` that tables beside a graph are described by, and those of archives.
OF_TABLES = ("features", "labels", "splits", "node_types", "rows")
OF_ARCHIVES = ("ignore", "rename", "split_column")


@dataclass(frozen=True)
class TableOptions:
    """Options of reading a source, as far as its format has them.

    Attributes:
        features, labels, splits, node_types: files of tables next to an edge list or matrix.
        edge_columns: meanings of the columns, for a list without a heading.
        edge_features: names of columns of the edge list, or a .npy file with a row for each edge.
        relabel: give nodes new numbers.
        node_ids: a file with the id of each row, for tables without a column of ids.
        heading: whether the edge list has one; None to recognise it.
        ignore: arrays of an .npz to leave out.
        rename: (old, new) names of its arrays.
        split_column: the split, if masks have a column for each of several.
        rows: one of `ROWS`.

    Raises:
        ConfigError: an unknown value.
    """

    features: Path | None = None
    labels: Path | None = None
    splits: Path | None = None
    node_types: Path | None = None
    edge_columns: tuple[str, ...] | None = None
    relabel: bool = False
    node_ids: Path | None = None
    heading: bool | None = None
    ignore: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    split_column: int | None = None
    edge_features: Path | tuple[str, ...] | None = None
    rows: str = AUTO

    def __post_init__(self) -> None:
        if self.rows not in ROWS:
            raise ConfigError(f"rows must be one of {', '.join(ROWS)}, got {self.rows!r}")

    def refuse(self, format_name: str, allowed: Collection[str] = ()) -> None:
        """FormatError if any field but `allowed` is set, for formats without the others."""
        given = [
            field.name
            for field in fields(self)
            if getattr(self, field.name) != field.default and field.name not in allowed
        ]
        if given:
            options, archives = (
                ", ".join(f"--{name.replace('_', '-')}" for name in given),
                set(given) <= set(OF_ARCHIVES),
            )
            raise FormatError(
                f"{options}: for {'.npz archives' if archives else 'edge lists and Matrix Market'}; {format_name} "
                f"{'is read whole' if archives else 'has its own arrays'}"
            )


def load_npy(path: str | Path, mapped: int | None = None) -> np.ndarray:
    """The array of a .npy file; one of more than `mapped` bytes is mapped, read-only.

    FormatError, with a remedy, for one that is damaged or pickled.
    """
    try:
        large = mapped is not None and Path(path).stat().st_size > mapped
        return np.load(path, "r" if large else None, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # of the header's text
        hint = ""
        if "ickle" in str(error):
            hint = (
                "; save it again as a plain array, without objects: a = numpy.load(FILE, allow_pickle=True); "
                "numpy.save(FILE, numpy.array(a.tolist()))"
            )
        raise FormatError(f"{path} is not a readable .npy array: {error}{hint}") from error
