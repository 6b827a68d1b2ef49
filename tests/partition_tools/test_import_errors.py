"""Every mistake in the input is one line, exit code 2, and leaves nothing behind."""

import numpy as np
import pytest
from partition_helpers import node_data, odd_graph, save_npz

from hpcgnn.errors import ConfigError
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.readers.tables.tables import TableOptions

N = 60
FEATURES, LABELS, MASKS = node_data(N)


def put(array, index, value, dtype=None):
    array = array.astype(dtype or array.dtype)
    array[index] = value
    return array


def sparse(pointers, columns):
    """Arrays of sparse features in nine columns."""
    arrays = {"indptr": pointers, "indices": columns, "data": [1.0], "shape": [N, 9]}
    return {"x": None} | {f"x_{name}": np.array(array) for name, array in arrays.items()}


SRC, DST = odd_graph()
FIRST, OTHER = np.argmax(MASKS["train"]), np.argmin(MASKS["train"])
ANY, STANDARDIZE, TARGETS = {"num_classes": None}, "features.standardize=true", "labels.task=regression"
CLASSES, SEVERAL = "labels.task=classification", "labels.task=multilabel"

BAD_ARRAYS = {
    "edge beyond the nodes": ({"edge_index": np.stack([put(SRC, 7, N), DST])}, "edge 7 has source 60"),
    "ids not integer": ({"edge_index": np.stack([SRC, DST]).astype(float)}, "integers"),
    "edge_index shape": ({"edge_index": np.stack([SRC, DST]).T}, "shape"),
    "label beyond": ({"y": put(LABELS, 9, 4)}, "node 9 has label 4"),
    "label fraction": ({"y": put(LABELS, 9, 1.5, float)}, "node 9 has label 1.5"),
    "label missing in split": ({"y": put(LABELS, np.argmax(MASKS["val"]), -1)}, "val split but has no label"),
    "labels short": ({"y": LABELS[:-1]}, "label"),
    "multi-label value": ({"y": np.full((N, 3), 2), "num_classes": None}, "neither 0 nor 1"),
    "nan": ({"x": put(FEATURES, (4, 2), np.nan)}, "node 4"),
    "features short": ({"x": FEATURES[:-1], "num_nodes": np.int64(N)}, "features"),
    "weights short": ({"edge_weight": np.ones(3)}, "edge weight"),
    "weight nan": ({"edge_weight": put(np.ones(len(SRC)), 5, np.nan)}, "edge 5"),
    "negative type": ({"edge_type": put(np.ones(len(SRC), int), 5, -1)}, "edge 5, from "),
    "type fraction": ({"edge_type": np.full(len(SRC), 0.5)}, "whole numbers"),
    "too many types": ({"edge_type": put(np.ones(len(SRC), int), 9, 1 << 16)}, "has type 65536; edge types are"),
    "type without a name": (
        {"edge_type": put(np.zeros(len(SRC), int), 7, 2), "edge_type_names": np.array(["a", "b"])},
        "has type 2; edge types are",
    ),
    "names of nothing": ({"edge_type_names": np.array(["a", "b"])}, "no edge types"),
    "one name twice": ({"edge_type": np.zeros(len(SRC), int), "edge_type_names": np.array(["a", "a"])}, "distinct"),
    "too many node types": ({"node_type": np.arange(N) + (1 << 16)}, "at most 65,536 types"),
    "node without type": ({"node_type": put(np.ones(N), 5, np.nan)}, "node 5 has no type"),
    "words and names": ({"node_type": np.array(["a"] * N), "node_type_names": np.array(["a"])}, "leave them out"),
    "edge without a word": ({"edge_type": np.array(["a", ""] * len(SRC))[: len(SRC)]}, "edge 1 has no type"),
    "two splits": ({"val_mask": MASKS["val"] | MASKS["train"]}, "in two splits"),
    "mask short": ({"val_mask": MASKS["val"][:-1]}, "val mask"),
    "no nodes": (
        {"x": None, "y": None, "edge_index": np.zeros((2, 0), int), **{f"{m}_mask": None for m in MASKS}},
        "no nodes",
    ),
    "edge feature nan": (
        {"edge_attr": put(np.zeros((len(SRC), 1)), 7, np.nan)},
        f"edge 7, from {SRC[7]} to {DST[7]}, has a feature that is NaN or infinite",
    ),
    "edge features empty": ({"edge_attr": np.zeros((len(SRC), 0))}, "no columns"),
    "no edges given": ({"edge_index": None}, "neither edge_index nor src"),
    "pickled": ({"y": np.array([{} for _ in range(N)])}, "pickle"),
    "sparse column": (sparse([0] + [1] * N, [9]), "sparse features of 9 columns are inconsistent"),
    "too large for fp16": ({"x": put(FEATURES, (4, 2), 1e5)}, "fp16", "features.dtype=fp16"),
    "no number for int8": ({"x": put(np.zeros((N, 3)), (4, 2), np.inf)}, "node 4", "features.dtype=int8"),
    "too few classes": ({}, "classes 0..2", "labels.classes=3"),
    "no training nodes": ({"train_mask": np.zeros(N, bool)}, "expected training nodes", STANDARDIZE),
    "rows and columns": ({}, "undo each other", STANDARDIZE, "features.row_normalize=true"),
    "no zeros": (sparse([0] + [1] * N, [8]), "sparse features would have no zeros", STANDARDIZE),
    "nan in training": (
        {"x": put(FEATURES, (FIRST, 2), np.nan)},
        f"node {FIRST} has a feature that is NaN",
        STANDARDIZE,
    ),
    "infinite elsewhere": (
        {"x": put(FEATURES, (OTHER, 1), np.inf)},
        f"node {OTHER} has a feature that is NaN or infinite",
        STANDARDIZE,
    ),
    "real numbers": ({"y": FEATURES[:, 0], **ANY}, "--set labels.task=regression"),
    "rows of real numbers": ({"y": FEATURES, **ANY}, "--set labels.task=regression"),
    "targets, classes": ({"y": np.ones(N), **ANY}, "has no classes, got labels.classes=3", TARGETS, "labels.classes=3"),
    "infinite target": ({"y": put(np.ones(N), 7, np.inf), **ANY}, "node 7 has an infinite target", TARGETS),
    "words as targets": ({"y": np.array(["a"] * N), **ANY}, "expected numbers, and the labels are", TARGETS),
    "no column": ({"y": np.ones((N, 0)), **ANY}, "expected one target", TARGETS),
    "one column": ({}, SEVERAL + ": expected several columns", SEVERAL),
    "two columns": ({"y": np.zeros((N, 2), int)}, CLASSES + ": expected one column", CLASSES),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays(fails, tmp_path, case):
    changes, message, *keys = BAD_ARRAYS[case]
    save_npz(tmp_path / "g.npz", SRC, DST, N, **changes)
    options = [word for key in keys for word in ("--set", key)]
    assert message in fails("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", *options)


def test_files(fails, tmp_path):
    target = ("-o", tmp_path / "g.h5")
    assert "no input" in fails("import", tmp_path / "nothing.npz", *target)
    (tmp_path / "d" / "raw").mkdir(parents=True)
    assert "not an OGB folder" in fails("import", tmp_path / "d", *target)


def test_without_polars(fails, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    (tmp_path / "e.txt").write_text("0 1\n")
    assert "hpcgnn[import]" in fails("import", tmp_path / "e.txt", "-o", tmp_path / "g.h5")


@pytest.mark.parametrize(
    "kind, option",
    [(ImportOptions, {"self_loops": "ad"}), (ImportOptions, {"feature_dtype": "fp8"}), (TableOptions, {"rows": "ids"})],
)
def test_unknown_values_from_python(kind, option):
    """A word that is neither keep nor remove once added self loops."""
    with pytest.raises(
        ConfigError, match=f"{next(iter(option))} must be one of .*, got '{next(iter(option.values()))}'"
    ):
        kind(**option)
