"""Inputs that are not read: one line has what is read, and the line of Python that converts them, if there is one."""

import shlex
import stat
from pathlib import Path

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import GraphFile

#: The spellings of an input that are read, for the refusal of all others.
SPELLINGS = (
    "an edge list (.csv, .tsv, .txt, .parquet) with the columns src,dst and perhaps weight,type; arrays (.npz, or a "
    "folder of .npy) with edge_index; a matrix (.mtx, or .npz of SciPy), METIS's .graph, a folder of OGB, or a mesh "
    "(.vtu, .xdmf, .msh, .exo)"
)
#: Suffixes of files that a library reads to an object, and what takes the object.
_TAKERS = {
    **dict.fromkeys((".bin", ".dgl"), "hpcgnn.extras.readers.from_dgl"),
    **dict.fromkeys((".pt", ".pth"), "partition_tools.from_pyg"),
    **dict.fromkeys((".graphml", ".gml", ".gexf", ".net"), "partition_tools.from_scipy as a matrix"),
    ".mat": "partition_tools.from_scipy",
    ".npy": "partition_tools.save_graph",
}
_GZIP = b"\x1f\x8b"


def unread(path: Path) -> FormatError:
    """The refusal of an input in no format that is read."""
    if path.suffix.lower() in (".h5", ".hdf5") and path.is_file():
        try:
            with GraphFile(path):
                return FormatError(
                    f"{path} is a graph file already; partition it: python -m partition_tools partition add "
                    f"{shlex.quote(str(path))} --ranks 1,2,4"
                )
        except FormatError:
            pass
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in _TAKERS:
        return FormatError(
            f"{path} ({suffix}) is not read; read it with its library in Python, and give the result to "
            f"{_TAKERS[suffix]} (docs/python.md)"
        )
    return FormatError(f"cannot tell the format of {path} from its name (--format says it); expected {SPELLINGS}")


def check_file(path: Path) -> None:
    """FormatError for a pipe, a socket or a terminal, since readers look at the first lines before they read a file;
    and for a file whose name does not say whether gzip has packed it.
    """
    if not path.exists() or path.is_dir():
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise FormatError(
            f"{path} can be read only once, expected a file: write it to a file first (cat {path} > input.csv), and "
            "import that"
        )
    if path.suffix in (".npz", ".pt"):
        return
    with open(path, "rb") as file:
        start = file.read(2)
    if start and (start == _GZIP) != (path.suffix == ".gz"):
        raise FormatError(
            f"{path} is {'' if start == _GZIP else 'not '}compressed by gzip; its name must "
            f"{'' if start == _GZIP else 'not '}end with .gz"
        )
