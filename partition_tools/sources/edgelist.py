"""Edge lists in text: a source, a destination and perhaps a weight per line, as SNAP and many others publish them."""

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.sources.beside import assemble
from partition_tools.tables import numeric, read_frame

NAME = "edgelist"
SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist")
COLUMNS = ("src", "dst", "weight", "type", "_")


def matches(path):
    """Whether a path looks like this format."""
    name = path.name.removesuffix(".gz")
    return path.is_file() and name.endswith(SUFFIXES)


def read(path, tables, reporter=None):
    """The `RawGraph` of an edge list and its tables. Raises FormatError naming the column that is wrong."""
    frame = read_frame(path)
    names = tables.edge_columns or ("src", "dst", "weight")[:max(len(frame.columns), 2)]
    if set(names) - set(COLUMNS) or "src" not in names or "dst" not in names or (
            len(set(names) - {"_"}) != sum(name != "_" for name in names)):
        raise FormatError(f"--edge-columns must name src and dst, and may name weight, type and _ (ignored), each "
                          f"once; got {','.join(names)}")
    if len(frame.columns) not in (0, len(names)):
        raise FormatError(f"{path} has {len(frame.columns)} columns, expected {len(names)} ({','.join(names)}); say "
                          f"what they are with --edge-columns, _ for one to ignore")
    columns = {}
    for position, name in enumerate(names):
        if name != "_":
            columns[name] = frame.iloc[:, position].to_numpy() if len(frame.columns) else np.zeros(0, np.int64)
    for name in ("src", "dst"):
        columns[name] = _ids(columns[name], path, name, tables.relabel)
    return assemble(columns["src"], columns["dst"], tables, path.name.split(".")[0],
                    **{key: None if name not in columns else numeric(columns[name], path)
                       for key, name in (("weight", "weight"), ("kind", "type"))})


def _ids(ids, path, name, relabel):
    if ids.dtype.kind in "iu":
        return ids
    if ids.dtype.kind == "f":
        if not np.isfinite(ids).all():
            raise FormatError(f"{path}: line of edge {int(np.argmin(np.isfinite(ids)))} has no {name}")
        if np.array_equal(ids, np.rint(ids)):
            return ids.astype(np.int64)
    if relabel and ids.dtype.kind != "f":
        return ids.astype(str)
    raise FormatError(f"{path}: column {name} holds ids that are not integers; --relabel numbers words and the like")
