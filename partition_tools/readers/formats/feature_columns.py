"""Which columns of an edge list are features of its edges, or which file beside it has them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.arrays.archives import map_npy
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch


def named_features(tables: TableOptions) -> tuple[str, ...]:
    """The names of columns that --edge-features has, of a heading."""
    return tables.edge_features if isinstance(tables.edge_features, tuple) else ()


def feature_places(names: Sequence[str], heading: Sequence[str] | None, tables: TableOptions) -> list[int]:
    """Which columns are features, in the order of --edge-features, else in their own.

    names: one of `headings.COLUMNS` for each column. heading: what the file calls them, or None. Raises FormatError.
    """
    wanted = named_features(tables)
    marked = [place for place, name in enumerate(names) if name == "feature"]
    if wanted and (heading is None or tables.edge_columns):
        raise FormatError(
            f"--edge-features {','.join(wanted)}: expected columns by their names in a heading; say which they are "
            "with --edge-columns, such as --edge-columns src,dst,feature,feature"
        )
    if marked and isinstance(tables.edge_features, Path):
        raise FormatError(f"--edge-columns names features, and --edge-features the file {tables.edge_features}")
    return [list(heading).index(name) for name in wanted] if heading is not None and wanted else marked


def of_file_or_columns(tables: TableOptions, columns: Mapping[str, np.ndarray], scratch: Scratch) -> np.ndarray | None:
    """The features of edges, (E, F) or (E,): of columns["features"], of the .npy file, or None. Raises FormatError."""
    if isinstance(tables.edge_features, Path):
        return map_npy(tables.edge_features, scratch)
    return columns.get("features")
