"""Inputs that are not read: one line has what is read, and the line of Python that converts them, if there is one."""

import shlex
import stat
from pathlib import Path

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import GraphFile

#: The spellings of an input that are read, for the refusal of all others.
SPELLINGS = (
    "an edge list (.csv, .tsv, .txt, .parquet) with the columns src,dst and perhaps weight,type; arrays (.npz, or a "
    "folder of .npy) with edge_index; a matrix (.mtx, or .npz of SciPy), METIS's .graph, or a folder of OGB"
)
_NETWORKX = "partition_tools.from_networkx(networkx.{}(FILE), 'graph.h5')"
#: Of suffixes whose libraries have an object that `partition_tools` takes: what Python writes the graph file.
_REMEDIES = {
    **dict.fromkeys((".bin", ".dgl"), "partition_tools.from_dgl(dgl.load_graphs(FILE)[0][0], 'graph.h5')"),
    **dict.fromkeys(
        (".pt", ".pth"),
        "partition_tools.from_pyg(torch.load(FILE, weights_only=False), 'graph.h5'), of a file you trust",
    ),
    ".graphml": _NETWORKX.format("read_graphml"),
    ".gml": _NETWORKX.format("read_gml"),
    ".gexf": _NETWORKX.format("read_gexf"),
    ".net": _NETWORKX.format("read_pajek"),
    ".mat": "partition_tools.from_scipy(scipy.io.loadmat(FILE)['A'], 'graph.h5'), with the name that the matrix has",
    ".npy": "partition_tools.save_graph('graph.h5', numpy.load(FILE)), of an array (2, E) of edges",
}
#: The first bytes of a packed file, and the program that packed it.
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}


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
    if suffix in _REMEDIES:
        return FormatError(
            f"{path} ({suffix}) is not read; in Python: {_REMEDIES[suffix].replace('FILE', repr(str(path)))}"
        )
    return FormatError(f"cannot tell the format of {path} from its name (--format says it); expected {SPELLINGS}")


def check_file(path: Path) -> None:
    """FormatError for a pipe, a socket or a terminal, since readers look at the first lines before they read a file;
    and for a file that is packed by another program than gzip, or whose name does not say what it is.
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
        start = file.read(8)
    packed = next((name for first, name in _PACKED.items() if start.startswith(first)), "")
    if packed not in ("", "gzip"):
        raise FormatError(f"{path} is compressed by {packed}, and only gzip is read; unpack it")
    if packed and path.suffix != ".gz":
        raise FormatError(f"{path} is compressed by gzip; its name must end with .gz")
    if start and path.suffix == ".gz" and not packed:
        raise FormatError(f"{path} is not compressed by gzip; take .gz from its name")
