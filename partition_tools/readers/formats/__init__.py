"""The formats that can be imported.

A format is a module with NAME, matches(path) and read(path, tables, reporter, scratch) -> RawGraph. Arrays of edges and
features that are larger than a part of `scratch.memory` are mapped from the input, or from a file of `scratch`.
"""

from pathlib import Path

from hpcgnn.errors import FormatError
from partition_tools.readers.formats import (
    dgl_file,
    distdgl,
    edgelist,
    graphml,
    matrix_market,
    metis_graph,
    npz,
    ogb,
    parquet,
    pyg_file,
    scipy_npz,
)
from partition_tools.readers.tables.foreign import refuse_suffix

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
        graphml,
        parquet,
        pyg_file,
        dgl_file,
    )
}


def guess(path: Path) -> str:
    """The name of the format that a path looks like; FormatError if it looks like none."""
    for name, module in SOURCES.items():
        if module.matches(path):
            return name
    refuse_suffix(path)
    raise FormatError(f"cannot tell the format of {path} from its name; say --format {'|'.join(SOURCES)}")
