"""Common code of edge lists in text and in Parquet: the columns of edge features, and a graph from the columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import warn_of_two_kinds
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import map_npy
from partition_tools.readers.formats.edges_with_tables import assemble
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch


def named_features(tables: TableOptions) -> tuple[str, ...]:
    """The names of columns that --edge-features has, of a heading."""
    return tables.edge_features if isinstance(tables.edge_features, tuple) else ()


def feature_places(names: Sequence[str], heading: Sequence[str] | None, tables: TableOptions) -> list[int]:
    """Which columns are features, in the order of --edge-features, else in their own.

    names: one of `headings.COLUMNS` for each column. heading: the file's names, or None. Raises FormatError.
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


def graph_of_columns(
    columns: Mapping[str, np.ndarray], tables: TableOptions, source: str, scratch: Scratch, ends: Sequence[str] = ()
) -> RawGraph:
    """The `RawGraph` of the columns of an edge list by their names (`headings.COLUMNS`), and of its tables.

    ends: see `headings.named_ends`.
    The features of edges are columns["features"], (E, F), or the .npy file of --edge-features. Raises FormatError.
    """
    features = columns.get("features")
    if isinstance(tables.edge_features, Path):
        features = map_npy(tables.edge_features, scratch)
    raw = assemble(
        columns["src"],
        columns["dst"],
        tables,
        source,
        scratch,
        weight=columns.get("weight"),
        kind=columns.get("type"),
        edge_features=features,
    )
    if ends:
        warn_of_two_kinds(raw.src, raw.dst, raw.num_nodes, ends, scratch.reporter)
    return raw
