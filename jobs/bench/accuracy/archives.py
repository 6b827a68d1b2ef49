"""Graphs of the benches of accuracy, the same for all systems.

A graph is a graph file of the project (.h5), or an .npz archive. The archive has edge_index (2, E), y (n,), train_mask,
val_mask, test_mask (n,), and features x (n, F), or in CSR form x_indptr, x_indices, x_data, x_shape. Edges of an
archive are taken both ways, once each. Features in CSR form become dense columns by a truncated singular value
decomposition, of mean square 1; dense ones stay as they are.
"""

import sys

import numpy as np
from shared.launched import quietly


def read_graph(path, columns):
    """{name: array} of an archive or a graph file: edge_index both ways, x dense, y, and the masks."""
    if path.suffix == ".h5":
        return of_graph_file(path)
    with np.load(path) as file:
        found = {name: file[name] for name in ("y", "train_mask", "val_mask", "test_mask")}
        n, (src, dst) = len(found["y"]), file["edge_index"].astype(np.int64)
        src, dst = src[src != dst], dst[src != dst]
        pairs = np.unique(np.concatenate([src * n + dst, dst * n + src]))
        found["edge_index"] = np.stack([pairs // n, pairs % n])
        found["x"] = file["x"] if "x" in file else narrowed(file, columns)
    return found


def narrowed(file, columns):
    """float32 (n, columns): the features in CSR form by their largest singular values."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    parts = tuple(file[f"x_{name}"] for name in ("data", "indices", "indptr"))
    left, values, _ = svds(csr_matrix(parts, shape=tuple(file["x_shape"])).astype(np.float64), columns, random_state=0)
    x = left * values
    return (x / np.sqrt((x**2).mean())).astype(np.float32)


def of_graph_file(path):
    """The same of a graph file of the project, in the original order of nodes."""
    import h5py

    with h5py.File(path) as file:
        place, indptr = file["nodes/original_id"][:], file["topology/indptr"][:].astype(np.int64)
        target = np.repeat(place, np.diff(indptr))
        source = place[file["topology/indices"][:]]
        nodes = {name: file[f"nodes/{name}"][:] for name in ("features", "labels", "split")}
    first = np.argsort(place)
    nodes = {name: array[first] for name, array in nodes.items()}
    masks = {f"{name}_mask": nodes["split"] == number for number, name in enumerate(("train", "val", "test"), 1)}
    edges = np.stack([source, target])
    return {"edge_index": edges, "x": nodes["features"].astype(np.float32), "y": nodes["labels"], **masks}


def import_graph(arrays, folder, ranks, clusters=None):
    """The graph file of the arrays, by hpcgnn's own tools. clusters: their number (None: as partition_tools has it)."""
    path = folder / "graph.h5"
    if not path.exists():
        np.savez(folder / "graph.npz", **arrays)
        tool = [sys.executable, "-m", "partition_tools"]
        quietly([*tool, "import", folder / "graph.npz", "-o", path])
        quietly([*tool, "partition", "add", path, "--ranks", ranks, *(["--clusters", clusters] if clusters else [])])
    return path


def add_shape(parser):
    """Options of the model's shape and of the graph's columns, the same for all benches of accuracy."""
    parser.add_argument("--columns", type=int, default=64, help="of features in CSR form (default: 64)")
    for name, default in (("layers", 2), ("hidden", 64), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}; heads are gat's")
    parser.add_argument("--dropout", type=float, default=0.5, help="default: 0.5")
