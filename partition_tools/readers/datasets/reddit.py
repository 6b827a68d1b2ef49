"""Reddit (Hamilton et al., NeurIPS 2017) as DGL publishes it, and PyG takes it from there: two archives.

reddit_data.npz has feature (n, F), label (n,) and node_types (n,): 1, 2 and 3 for training, validation and test nodes.
reddit_graph.npz is a sparse matrix of SciPy in coordinates: row (E,), col (E,), shape (2,). Its data are ones, and are
not read. It has both directions of each edge.
"""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import Arrays, open_arrays
from partition_tools.readers.datasets.dataset import Dataset
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch

SPLITS = {"train": 1, "val": 2, "test": 3}


def read(folder: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of the folder of the two archives. Raises FormatError naming the array that is wrong."""
    with open_arrays(folder / "reddit_graph.npz", scratch) as archive:
        if "row" not in archive.files or "col" not in archive.files:
            raise FormatError(
                f"{archive.path} is not a sparse matrix in coordinates (row, col); it has {', '.join(archive.files)}"
            )
        src, dst, shape = (_array(archive, name) for name in ("row", "col", "shape"))
    with open_arrays(folder / "reddit_data.npz", scratch) as archive:
        features, labels, types = (_array(archive, name) for name in ("feature", "label", "node_types"))
        if shape.size != 2 or features.ndim != 2 or len({*shape.tolist(), len(features), len(labels), len(types)}) > 1:
            raise FormatError(
                f"{folder}: the two archives do not agree on the number of nodes: the matrix is of shape "
                f"{tuple(shape.tolist())}, features {features.shape}, labels {labels.shape}, types {types.shape}"
            )
    if types.dtype.kind not in "iu" or types.ndim != 1:
        raise FormatError(f"{folder / 'reddit_data.npz'}: node_types must be a vector of 1, 2 and 3, got {types.dtype}")
    split = {name: types == number for name, number in SPLITS.items()}
    return RawGraph(src=src, dst=dst, num_nodes=len(features), features=features, labels=labels, split=split)


def _array(archive: Arrays, name: str) -> np.ndarray:
    array = archive.array(name)
    if array is None or not array.ndim:
        raise FormatError(f"{archive.path} has no array {name}; it has {', '.join(archive.files)}")
    return array


DATASETS = (
    Dataset(
        "reddit",
        232_965,
        114_615_892,
        "https://data.dgl.ai/dataset/reddit.zip",
        (".", "raw", "reddit", "Reddit", "reddit/raw", "Reddit/raw", ".dgl/reddit"),
        ("reddit_data.npz", "reddit_graph.npz"),
        read,
        split="node_types",
        classes=41,
    ),
)
