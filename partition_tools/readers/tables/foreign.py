"""Files of other libraries that are graphs but cannot be read here: the answer is the line of Python that converts
them.

Most of them are pickles, and loading one runs code of the file's author. So users convert them, where the library is
at hand.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import GraphFile

PYG = (
    "import torch, numpy as np; data = torch.load('FILE', weights_only=False); data = data[0] if isinstance(data, "
    "(tuple, list)) else data; np.savez('g.npz', edge_index=data.edge_index.numpy(), x=data.x.numpy(), "
    "y=data.y.numpy(), train_mask=data.train_mask.numpy(), val_mask=data.val_mask.numpy(), "
    "test_mask=data.test_mask.numpy())"
)
_DGL = "import dgl, partition_tools; partition_tools.from_dgl(dgl.load_graphs('FILE')[0][0], 'graph.h5')"
_TABLE = "import pandas; pandas.READ('FILE').to_csv('edges.csv', index=False), with the columns src and dst"
_NETWORKX = "import networkx, partition_tools; partition_tools.from_networkx(networkx.READ('FILE'), 'graph.h5')"
_NODE_LINK = _NETWORKX.replace("import networkx", "import json, networkx").replace(
    "READ('FILE')", "node_link_graph(json.load(open('FILE')))"
)
_PICKLE = (
    "a pickle can run code when it is loaded: load it where you trust it, and save the arrays with "
    "numpy.savez('g.npz', edge_index=..., x=..., y=...)"
)
_HDF5 = (
    "import h5py, numpy as np; f = h5py.File('FILE'); np.savez('g.npz', edge_index=f['edge_index'][:], x=f['x'][:], "
    "y=f['y'][:]), with the names that the file has"
)
_REMEDIES = {
    ".pt": ("PyTorch (PyG)", PYG),
    ".pth": ("PyTorch (PyG)", PYG),
    ".bin": ("DGL", _DGL),
    ".dgl": ("DGL", _DGL),
    ".h5": ("HDF5", _HDF5),
    ".hdf5": ("HDF5", _HDF5),
    ".feather": ("Feather", _TABLE.replace("READ", "read_feather")),
    ".xlsx": ("Excel", _TABLE.replace("READ", "read_excel")),
    ".graphml": ("GraphML", _NETWORKX.replace("READ", "read_graphml")),
    ".gml": ("GML", _NETWORKX.replace("READ", "read_gml")),
    ".gexf": ("GEXF", _NETWORKX.replace("READ", "read_gexf")),
    ".net": ("Pajek", _NETWORKX.replace("READ", "read_pajek")),
    ".adjlist": ("adjacency lists", _NETWORKX.replace("READ", "read_adjlist")),
    ".dot": ("Graphviz", _NETWORKX.replace("READ", "nx_pydot.read_dot")),
    ".gv": ("Graphviz", _NETWORKX.replace("READ", "nx_pydot.read_dot")),
    ".json": ("JSON", _NODE_LINK),
    ".jsonl": ("JSON lines", _TABLE.replace("READ('FILE'", "read_json('FILE', lines=True")),
    ".ndjson": ("JSON lines", _TABLE.replace("READ('FILE'", "read_json('FILE', lines=True")),
    ".orc": ("ORC", _TABLE.replace("READ", "read_orc")),
    ".pkl": ("pickle", _PICKLE),
    ".pickle": ("pickle", _PICKLE),
    ".gpickle": ("pickle", _PICKLE),
    ".mat": (
        "MATLAB",
        "import scipy.io; scipy.io.mmwrite('g.mtx', scipy.io.loadmat('FILE')['A']), with the name that the matrix has",
    ),
    ".npy": (
        "a single numpy array",
        "import numpy as np; e = np.load('FILE'); np.savez('g.npz', edge_index=e), of shape "
        "(2, E): row 0 the sources, row 1 the destinations",
    ),
}


def _refused(path: Path, what: str, remedy: str) -> FormatError:
    then = "" if "partition_tools.from_" in remedy else " and import what that writes"
    code = remedy.replace("'FILE'", repr(str(path)))
    return FormatError(f"{path} is a file of {what}, which is not read here; convert it in Python{then}: {code}")


def refuse_suffix(path: Path, suffix: str = "") -> None:
    """FormatError with the conversion, for a path whose suffix, or the given one, shows the library that wrote it."""
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
        what, remedy = _REMEDIES[suffix]
        if remedy is _PICKLE:
            raise FormatError(f"{path} is a pickle, which is not read here; {remedy}")
        raise _refused(path, what, remedy)


def refuse_table(path: Path) -> None:
    """FormatError for a table of features, labels, splits or ids that another library wrote."""
    if path.suffix.lower() in _REMEDIES and path.suffix.lower() != ".npy":
        raise FormatError(
            f"{path} is a file of {_REMEDIES[path.suffix.lower()][0]}, which is not read here; give a text "
            "table or a plain array: numpy.save('FILE.npy', array)"
        )


def of_scipy(names: Iterable[str]) -> bool:
    """Whether SciPy's save_npz wrote an archive with these members."""
    names = set(names)
    return {"format", "shape", "data"} <= names and (
        {"indices", "indptr"} <= names or {"row", "col"} <= names or "offsets" in names
    )


def refuse_foreign(path: Path, names: Iterable[str]) -> None:
    """FormatError with the conversion, for an archive whose members say that SciPy or PyTorch wrote it."""
    if of_scipy(names):
        raise FormatError(f"{path} is a matrix of SciPy (save_npz); import it with --format scipy")
    if any(name.endswith("data.pkl") for name in names):
        raise _refused(path, "PyTorch (PyG)", PYG)
