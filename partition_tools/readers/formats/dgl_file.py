"""Files of `dgl.save_graphs`, read by DGL where it is installed. They are no pickles."""

from pathlib import Path

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.graph_objects import named_of_dgl
from partition_tools.readers.arrays.in_memory import InMemory
from partition_tools.readers.arrays.named_arrays import graph_of
from partition_tools.readers.tables.foreign import refuse_suffix
from partition_tools.readers.tables.tables import OF_ARCHIVES, TableOptions
from partition_tools.workspace.scratch import Scratch

NAME = "dgl"


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.suffix in (".bin", ".dgl")


def read(path: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of the one graph in a file. FormatError without DGL, with the line that converts the file."""
    tables.refuse(NAME, OF_ARCHIVES)
    try:
        import dgl
    except ImportError as error:
        refuse_suffix(path, f"DGL cannot be imported here ({error})")
        raise FormatError(f"reading {path} needs DGL, which cannot be imported here ({error})") from error
    try:
        graphs, labels = dgl.load_graphs(str(path))
    except Exception as error:  # DGLError, and what its C++ has to say
        raise FormatError(f"{path} is not a readable file of dgl.save_graphs: {error}") from error
    if len(graphs) != 1:
        raise FormatError(f"{path} holds {len(graphs)} graphs, expected one")
    if labels:
        scratch.reporter.warn(f"{path}: not read: {', '.join(labels)}, which are of the whole graph")
    return graph_of(InMemory(str(path), named_of_dgl(graphs[0], scratch.reporter)), tables, scratch.reporter)
