"""Plain .npz archives and folders of .npy files, whose arrays go by their names (`named_arrays`). Large arrays are
mapped (`archives`).
"""

from pathlib import Path

from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import open_arrays
from partition_tools.readers.arrays.named_arrays import ArrayOptions, graph_of
from partition_tools.workspace.scratch import Scratch

NAME = "npz"
OPTIONS = ArrayOptions


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.suffix == ".npz" or (
        path.is_dir() and any((path / f"{name}.npy").is_file() for name in ("edge_index", "src"))
    )


def read(path: Path, options: ArrayOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of an archive. Raises FormatError naming what is missing, and what is there but not read."""
    with open_arrays(path, scratch) as archive:
        return graph_of(str(path), archive, options, scratch.reporter)
