"""Files of other libraries that are graphs but cannot be read here: one line says which spellings can.

Most of them are pickles, and loading one runs code of the file's author. So users convert them, where the library is
at hand.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.readers.tables.headings import SPELLINGS

_DGL = "partition_tools.from_dgl(dgl.load_graphs(FILE)[0][0], 'graph.h5')"
_NETWORKX = "partition_tools.from_networkx(networkx.READ(FILE), 'graph.h5')"
#: Of suffixes whose libraries have an object that `partition_tools` takes: what Python writes the graph file.
_REMEDIES = {
    ".bin": _DGL,
    ".dgl": _DGL,
    ".graphml": _NETWORKX.replace("READ", "read_graphml"),
    ".gml": _NETWORKX.replace("READ", "read_gml"),
    ".gexf": _NETWORKX.replace("READ", "read_gexf"),
    ".net": _NETWORKX.replace("READ", "read_pajek"),
    ".adjlist": _NETWORKX.replace("READ", "read_adjlist"),
    ".mat": "partition_tools.from_scipy(scipy.io.loadmat(FILE)['A'], 'graph.h5'), with the name that the matrix has",
    ".npy": "partition_tools.save_graph('graph.h5', numpy.load(FILE)), of an array (2, E) of edges",
}
_NO_TABLES = (".pt", ".pth", ".h5", ".hdf5", ".xlsx", ".feather", ".json", ".jsonl", ".orc", ".pkl", ".pickle", ".mat")


def refuse_suffix(path: Path, suffix: str = "") -> None:
    """FormatError for a graph that is not read: with Python's line that converts it, where there is one. suffix: in
    place of the path's.
    """
    if path.suffix.lower() in (".h5", ".hdf5") and path.is_file():
        try:
            with GraphFile(path):
                pass
        except FormatError:
            pass
        else:
            raise FormatError(
                f"{path} is a graph file already; partition it: python -m partition_tools partition "
                f"{shlex.quote(str(path))} --ranks 1,2,4"
            )
    suffix = suffix or Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in _REMEDIES:
        raise FormatError(
            f"{path} ({suffix}) is not read here; in Python: {_REMEDIES[suffix].replace('FILE', repr(str(path)))}"
        )


def refuse_table(path: Path) -> None:
    """FormatError for a table of features, labels, splits or ids that another library wrote."""
    if path.suffix.lower() in _NO_TABLES:
        raise FormatError(f"{path} is no table that is read; write text (.csv), .parquet, or an array (.npy)")


def of_scipy(names: Iterable[str]) -> bool:
    """Whether SciPy's save_npz wrote an archive with these members."""
    names = set(names)
    return {"format", "shape", "data"} <= names and (
        {"indices", "indptr"} <= names or {"row", "col"} <= names or "offsets" in names
    )


def refuse_foreign(path: Path, names: Iterable[str]) -> None:
    """FormatError for an archive whose members say that SciPy or PyTorch wrote it."""
    if of_scipy(names):
        raise FormatError(f"{path} is a matrix of SciPy (save_npz); import it with --format scipy")
    if any(name.endswith("data.pkl") for name in names):
        raise FormatError(f"{path} is a file of torch.save; its name must end with .pt")


def unknown_format(path: Path) -> FormatError:
    """The refusal of a path that looks like no format."""
    return FormatError(f"cannot tell the format of {path} from its name (--format says it); expected {SPELLINGS}")
