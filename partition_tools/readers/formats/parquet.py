"""Edge lists in Parquet: a row for each edge, columns by their names as in a text table."""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import whole
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.formats.edge_columns import feature_places, graph_of_columns, named_features
from partition_tools.readers.tables.headings import ENDS, columns_of, named_ends, said
from partition_tools.readers.tables.parts import parts_of
from partition_tools.readers.tables.tables import OF_TABLES, TableOptions, numeric, read_parquet, with_index
from partition_tools.workspace.scratch import Scratch

NAME = "parquet"


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.suffix == ".parquet" or bool(parts_of(path, (".parquet",)))


def read(path: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of an edge list and its tables, read at once. FormatError naming the column that is wrong."""
    tables.refuse(NAME, (*OF_TABLES, "edge_columns", "edge_features", "relabel", "node_ids"))
    frame = read_parquet(path)
    if any(name is not None for name in frame.index.names):  # src and dst may be there, as pandas groups edges
        frame = with_index(frame)
    heading = tuple(str(name) for name in frame.columns)
    if tables.edge_columns and len(tables.edge_columns) != len(heading):
        raise FormatError(
            f"{path} has the columns {', '.join(heading)}; --edge-columns must say what each of them is, _ for one to "
            f"ignore, got {','.join(tables.edge_columns)}"
        )
    names = tables.edge_columns or columns_of(heading, path, named_features(tables))
    scratch.reporter.stage(f"{path}: {said(names, heading)}")
    relabel = tables.relabel or tables.node_ids is not None
    columns = {}
    for position, name in enumerate(names):
        if name in ("_", "feature"):
            continue
        values = frame.iloc[:, position].to_numpy()
        where = f"{path}: column {heading[position]}"
        if name in ENDS:
            columns[name] = _ids(values, where, relabel)
        else:
            columns[name] = values if name == "type" and values.dtype == object else numeric(values, where)
    places = feature_places(names, heading, tables)
    if places:
        rows = [numeric(frame.iloc[:, place].to_numpy(), f"{path}: column {heading[place]}") for place in places]
        columns["features"] = np.stack(rows, 1)
    if missing := [end for end in ENDS if end not in columns]:
        raise FormatError(
            f"{path} has the columns {', '.join(heading)}, of which none is {missing[0]}; see --edge-columns"
        )
    return graph_of_columns(columns, tables, path.stem, scratch, named_ends(names, heading))


def _ids(values: np.ndarray, where: str, relabel: bool) -> np.ndarray:
    nothing = np.array([value is None or value != value for value in values]) if values.dtype.kind in "Of" else None
    if nothing is not None and nothing.any():
        raise FormatError(f"{where}: edge {int(np.argmax(nothing))} has none")
    if (numbers := whole(values)) is not None:
        return numbers
    if values.dtype.kind == "O" and relabel:
        return np.char.strip(values.astype(str))
    raise FormatError(f"{where} holds ids that are not integers; --relabel numbers words and the like")
