"""The graph file as peers read it: plain arrays, in the original order of nodes.

hpcgnn's files have their nodes in cluster order, which makes every system's aggregation faster. A user of a peer does
not have that order, so peers are given the original one.
"""

from dataclasses import dataclass

import h5py
import numpy as np

TRAIN = 1  # nodes/split, see partition_tools/README.md


@dataclass
class Graph:
    """In-edges by destination. indptr: int64 (n + 1,); indices: int64 (E,), sources; features: float32 (n, F); labels:
    int64 (n,); train: int64, the training nodes. path: of the file, '' without one."""

    indptr: np.ndarray
    indices: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    classes: int
    path: str = ""


def read_graph(path, self_loops=False):
    """The graph of a file, with a self loop added to every node without one if `self_loops`. Raises ValueError if peers
    have no counterpart for the data of the file.
    """
    with h5py.File(path, "r") as file:
        for attribute in ("multi_label", "weighted", "typed", "sparse_features"):
            if file.attrs[attribute]:
                raise ValueError(
                    f"{path} is {attribute}; the comparison is of plain graphs with dense features and classes"
                )
        indptr = file["topology/indptr"][:].astype(np.int64)
        source = file["topology/indices"][:].astype(np.int64)
        features = file["nodes/features"][:].astype(np.float32, copy=False)
        if "nodes/features_scale" in file:
            features *= file["nodes/features_scale"][:]
        labels, split = file["nodes/labels"][:].astype(np.int64), file["nodes/split"][:]
        original, classes = file["nodes/original_id"][:], int(file.attrs["num_classes"])
    nodes = len(indptr) - 1
    target = np.repeat(np.arange(nodes), np.diff(indptr))
    source, target = original[source], original[target]
    place = np.argsort(original)
    features, labels, split = features[place], labels[place], split[place]
    if self_loops:
        missing = np.setdiff1d(np.arange(nodes), source[source == target])
        source, target = np.concatenate([source, missing]), np.concatenate([target, missing])
    source = source[np.argsort(target * nodes + source)]
    counts = np.bincount(target, minlength=nodes)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Graph(indptr, source, features, labels, np.flatnonzero(split == TRAIN), classes, str(path))


def toy_graph(width, classes, nodes=256):
    """A ring with self loops, for the step that comes before the memory's baseline, as in hpcgnn.engine.probe."""
    around = (np.arange(nodes)[:, None] + [-1, 0, 1]) % nodes
    return Graph(
        np.arange(0, 3 * nodes + 1, 3),
        np.sort(around, 1).reshape(-1),
        np.ones((nodes, width), np.float32),
        np.zeros(nodes, np.int64),
        np.arange(nodes),
        classes,
    )
