"""The formats that can be imported.

A format is a module with NAME, matches(path) and read(path, tables, scratch) -> RawGraph. Arrays of edges and
features that are larger than a part of `scratch.memory` are mapped from the input, or from a file of `scratch`.
"""

from pathlib import Path

from hpcgnn.errors import ConfigError, FormatError
from partition_tools.readers.formats import (
    distdgl,
    edgelist,
    matrix_market,
    metis_graph,
    npz,
    ogb,
    pyg_file,
    scipy_npz,
)
from partition_tools.readers.tables.foreign import refuse_suffix, unknown_format

SOURCES = {
    module.NAME: module
    for module in (
        distdgl,
        scipy_npz,
        npz,
        edgelist,
        matrix_market,
        ogb,
        metis_graph,
        pyg_file,
    )
}

#: Formats until 0.4, and a suffix of their files.
REMOVED = {"graphml": ".graphml", "dgl": ".bin"}


def format_of(path: Path, name: str | None) -> str:
    """The format to read an input in: the one of this name, or (None) the one that the path looks like.

    Raises FormatError, ConfigError: there is no input, no such format, or the path looks like none.
    """
    if not path.exists():
        raise FormatError(f"no input at {path}; expected a graph in one of the formats {', '.join(SOURCES)}")
    name = "edgelist" if name == "parquet" else name
    if name in REMOVED:
        refuse_suffix(path, REMOVED[name])
    if name is not None and name not in SOURCES:
        raise ConfigError(f"unknown format {name!r}; expected one of {', '.join(SOURCES)}")
    if name is not None:
        return name
    for known, module in SOURCES.items():
        if module.matches(path):
            return known
    refuse_suffix(path)
    raise unknown_format(path)
