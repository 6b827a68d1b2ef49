"""The homogeneous graphs of the Illinois Graph Benchmark (Khatua et al., KDD 2023), as its downloads leave them.

SIZE/processed/paper/ has node_feat.npy (n, 1024) and the labels node_label_19.npy or node_label_2K.npy (n,);
SIZE/processed/paper__cites__paper/ has edge_index.npy, which is (E, 2) here: a row is an edge. In the sizes large and
full, features and labels are float32 without a header, as numpy.memmap writes them. The others are .npy files.

The benchmark's own loader makes the split. In the order of ids, the first 60 % of the labelled nodes are for training,
the next 20 % for validation. In the full graph only the first nodes are labelled.
"""

import functools
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import map_npy
from partition_tools.readers.datasets.dataset import Dataset
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch

WIDTH = 1024
FEATURES, EDGES = "processed/paper/node_feat.npy", "processed/paper__cites__paper/edge_index.npy"
LABELS = {19: "processed/paper/node_label_19.npy", 2983: "processed/paper/node_label_2K.npy"}
# {size: (nodes, edges, {classes: how many of the first nodes are labelled, where not all are})}
SIZES: dict[str, tuple[int, int, dict[int, int]]] = {
    "tiny": (100_000, 547_416, {}),
    "small": (1_000_000, 12_070_502, {}),
    "medium": (10_000_000, 120_077_694, {}),
    "large": (100_000_000, 1_223_571_364, {}),
    "full": (269_346_174, 3_995_777_033, {19: 227_130_858, 2983: 157_675_969}),
}


def read(folder: Path, tables: TableOptions, scratch: Scratch, *, classes: int, labelled: int | None) -> RawGraph:
    """The `RawGraph` of a folder that holds processed/. Memory: 4 bytes per node for the labels, 3 for the split.

    classes: 19 or 2983; labelled: how many of the first nodes are, None for all. Raises FormatError naming the file.
    """
    edges = map_npy(folder / EDGES, scratch)
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        raise FormatError(f"{folder / EDGES} must be integers of shape (E, 2), got {edges.dtype}{list(edges.shape)}")
    if edges.shape[1] != 2:
        edges = edges.T
    features = _array(folder / FEATURES, (WIDTH,), scratch)
    labels = _array(folder / LABELS[classes], (), scratch).reshape(-1)
    n = len(features)
    if features.ndim != 2 or len(labels) != n:
        raise FormatError(
            f"{folder}: {FEATURES} is of shape {features.shape}, but {LABELS[classes]} has {len(labels)} labels; "
            "expected one for each row"
        )
    count = n if labelled is None else min(n, labelled)
    if count < n:
        labels = np.concatenate([labels[:count], np.full(n - count, -1, labels.dtype)])
    train, val = int(0.6 * count), int(0.2 * count)
    split = {name: np.zeros(n, bool) for name in ("train", "val", "test")}
    split["train"][:train], split["val"][train : train + val], split["test"][train + val : count] = True, True, True
    return RawGraph(src=edges[:, 0], dst=edges[:, 1], num_nodes=n, features=features, labels=labels, split=split)


def _array(file: Path, shape: tuple[int, ...], scratch: Scratch) -> np.ndarray:
    """A .npy file, or float32 numbers without a header that are rows of `shape`."""
    with open(file, "rb") as begun:
        if begun.read(6) == b"\x93NUMPY":
            return map_npy(file, scratch)
    row = 4 * int(np.prod(shape))
    size = file.stat().st_size
    if not size or size % row:
        raise FormatError(
            f"{file} has {size} bytes and no .npy header; expected float32 numbers in rows of {row} bytes: "
            "download it again"
        )
    return np.memmap(file, np.float32, "r", shape=(size // row, *shape))


DATASETS = tuple(
    Dataset(
        f"igb-{size}" if classes == 19 else f"igb-{size}-2k",
        nodes,
        edges,
        "https://github.com/IllinoisGraphBenchmark/IGB-Datasets",
        (size, *(("experimental",) if size == "tiny" else ()), f"igb_homogeneous_{size}", "."),
        (FEATURES, EDGES, LABELS[classes]),
        functools.partial(read, classes=classes, labelled=labelled.get(classes)),
        split="60 / 20 / 20 %, in order",
        usual="--self-loops add",
        classes=classes,
    )
    for size, (nodes, edges, labelled) in SIZES.items()
    for classes in LABELS
)
