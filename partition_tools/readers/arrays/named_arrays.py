"""Graphs as named arrays, in an archive or in the memory of a program that calls `partition_tools.from_pyg`.

* `edge_index` int (2, E), row 0 the sources and row 1 the destinations; or `src`, `dst` int (E,)
* `x` or `feat` (n, F), or the CSR pieces `x_indptr`, `x_indices`, `x_data`, `x_shape`; `y` or `label`
* `train_mask` or `train_idx`, and so on for val and test
* `edge_weight`, `edge_type` (E,), `edge_attr` (E,) or (E, F_e), `node_type` (n,), `n_id` (n,) of ids, `num_nodes`,
  `num_classes`; `edge_type_names`, `node_type_names`, `class_names`
* held-out edges, `val_edge`, `test_edge_neg` and so on (`links`)

Any other array is refused until `arrays.ignore` leaves it out: a graph without it may mean something else.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.given_links import HELD
from hpcgnn.graphfile.schema import SPLITS, Csr, RowReader
from partition_tools.canonical.links import NAMES
from partition_tools.graph.counts import largest, stated, warn_of_gaps
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import Arrays
from partition_tools.readers.arrays.in_memory import as_array, plain_ids
from partition_tools.readers.tables.node_tables import label_numbers
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.settings import key, names

RENUMBER = "state num_nodes if they are meant, else number the nodes: numpy.unique(edge_index, return_inverse=True)"
FEATURES, LABELS = ("x", "feat"), ("y", "label")
#: Names of splits: masks (n,) or (n, several), and lists of nodes.
MEMBERS = {f"{split}_{kind}": split for split in SPLITS for kind in ("mask", "idx")}
_LINKS = {f"{split}_{part}": (split, part) for split in HELD for part in NAMES}
_SPARSE = tuple(f"x_{part}" for part in ("indptr", "indices", "data", "shape"))
_READ = (
    *("edge_index", "src", "dst", *FEATURES, *LABELS, *MEMBERS, "edge_weight", "edge_type", "edge_attr", "node_type"),
    *("n_id", "num_nodes", "num_classes", "edge_type_names", "node_type_names", "class_names", *_SPARSE, *_LINKS),
)


@dataclass(frozen=True)
class ArrayOptions:
    """Options of reading named arrays."""

    ignore: tuple[str, ...] = key("arrays.ignore", (), "arrays to leave out, separated by commas", names)
    split_column: int | None = key("arrays.split_column", None, "column, from 0, of masks with several", int)


def in_memory(arrays: Mapping[str, Any]) -> Arrays:
    """Arrays of a program by their names."""
    return {name: functools.partial(as_array, array, name) for name, array in arrays.items()}


def graph_of(what: str, arrays: Arrays, options: ArrayOptions, reporter: Reporter) -> RawGraph:
    """The `RawGraph` of named arrays. Raises FormatError naming what is missing, and what is there but not read.

    what: the path of the arrays, or the graph's name in errors.
    """
    path = Path(what)
    there = [name for name in arrays if name not in options.ignore]
    if missing := [name for name in options.ignore if name not in arrays]:
        raise FormatError(f"{path} has no array {missing[0]} to ignore; it has {', '.join(arrays)}")
    if unread := [name for name in there if name not in _READ]:
        raise FormatError(
            f"{path} holds {', '.join(unread)}, which {'are' if len(unread) > 1 else 'is'} not read; expected of: "
            f"{', '.join(_READ[:17])}, ... (docs/importing.md). Save it under such a name, or leave it out: --set "
            f"arrays.ignore={','.join(unread)}"
        )
    get = _Getter(path, {name: arrays[name] for name in there})
    if "edge_index" in there:
        ends = get("edge_index")
        if ends.ndim != 2 or ends.shape[0] != 2:
            turned = "; turn it: edge_index.T" if ends.ndim == 2 and ends.shape[1] == 2 else ""
            raise FormatError(f"{path}: edge_index must have shape (2, E), got {ends.shape}{turned}")
        src, dst = ends[0], ends[1]
    else:
        if not {"src", "dst"} <= set(there):
            raise FormatError(f"{path} has neither edge_index nor src and dst; it has {', '.join(there) or 'nothing'}")
        src, dst = (np.asarray(get(name)) for name in ("src", "dst"))
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu":
        raise FormatError(f"{path}: ends of edges must be integers; edge_index.astype(numpy.int64)")
    features, labels, node_type, ids = get.features(), get(*LABELS), get("node_type"), get("n_id")
    named = {"nodes": "node_type_names", "edges": "edge_type_names", "classes": "class_names"}
    type_names = {what: get(name).tolist() for what, name in named.items() if name in there}
    if labels is not None:
        labels, words = label_numbers(labels, f"{path}: the labels")
        if words and "classes" in type_names:
            raise FormatError(f"{path} holds class_names beside words as labels: --set arrays.ignore=class_names")
        type_names |= {"classes": words} if words else {}
    split: dict[str, np.ndarray | None] = {}
    for name, of in MEMBERS.items():
        if name in there and of in split:
            raise FormatError(f"{path} holds {of}_mask and {name}; leave one out: --set arrays.ignore={name}")
        if name in there:
            split[of] = get.members(name, options.split_column)
    links: dict[str, dict[str, np.ndarray]] = {}
    for name, (of, part) in _LINKS.items():
        if name in there:
            links.setdefault(of, {})[part] = get(name)
    num_nodes = stated(arrays["num_nodes"](), f"{path}: num_nodes") if "num_nodes" in there else None
    per_node = [
        features,
        labels,
        node_type,
        ids,
        *(mask for mask in split.values() if mask is not None and mask.dtype == bool),
    ]
    return RawGraph(
        src=src,
        dst=dst,
        num_nodes=count_nodes(src, dst, per_node, reporter) if num_nodes is None else num_nodes,
        features=features,
        labels=labels,
        split=split,
        num_classes=stated(arrays["num_classes"](), f"{path}: num_classes") if "num_classes" in there else None,
        weight=get("edge_weight"),
        type=get("edge_type"),
        source=path.stem,
        node_type=node_type,
        type_names=type_names,
        edge_features=get("edge_attr"),
        links=links,
        ids=None if ids is None else own_ids(ids, path),
    )


class _Getter:
    """The arrays of a graph by their names, checked one by one. Raises FormatError."""

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self.path, self.arrays = path, arrays

    def __call__(self, *synonyms: str) -> Any:
        """The one array of these names that is there, or None."""
        found = [name for name in synonyms if name in self.arrays]
        if len(found) > 1:
            raise FormatError(
                f"{self.path} holds {' and '.join(found)}, which mean the same; leave one out: --set "
                f"arrays.ignore={found[1]}"
            )
        array = self.arrays[found[0]]() if found else None
        if array is not None and array.ndim == 0:
            raise FormatError(f"{self.path}: {found[0]} is a single value, expected an array of them")
        return array

    def features(self) -> np.ndarray | Csr | None:
        """Dense ones, or sparse ones of x_indptr and so on."""
        dense = self(*FEATURES)
        indptr, indices, data, shape = map(self, _SPARSE)
        if all(part is None for part in (indptr, indices, data, shape)):
            return dense
        if dense is not None or indptr is None or indices is None or shape is None or shape.size != 2:
            raise FormatError(
                f"{self.path}: sparse features need {', '.join(_SPARSE)} (rows, columns), and no dense ones"
            )
        rows, columns = (stated(number, f"{self.path}: x_shape") for number in shape.reshape(-1))
        for part in (indptr, indices):
            if part.ndim != 1 or part.dtype.kind not in "iu" or rows != len(indptr) - 1:
                raise FormatError(f"{self.path}: x_indptr (rows + 1) and x_indices must be vectors of integers")
        if data is not None and (data.ndim != 1 or data.dtype.kind not in "iufb"):
            raise FormatError(f"{self.path}: x_data must be a vector of numbers, got {data.dtype}{list(data.shape)}")
        return Csr(indptr, indices, data, columns)

    def members(self, name: str, column: int | None) -> np.ndarray:
        """A mask as booleans, of several the one of the column; or node ids."""
        array: np.ndarray = self(name)
        if name.endswith("_mask") and array.ndim == 2 and array.shape[1]:
            if array.shape[1] > 1 and not 0 <= (-1 if column is None else column) < array.shape[1]:
                raise FormatError(
                    f"{self.path}: {name} has {array.shape[1]} columns, one for each split; choose one with "
                    f"--set arrays.split_column=0 to {array.shape[1] - 1}, got {column}"
                )
            array = array[:, column if column is not None and array.shape[1] > 1 else 0]
        if name.endswith("_mask") and array.dtype != bool:
            if array.dtype.kind not in "iu" or not np.isin(array, (0, 1)).all():
                raise FormatError(f"{self.path}: {name} must be booleans, got {array.dtype}{list(array.shape)}")
            array = array.astype(bool)
        return array.reshape(-1) if array.ndim == 2 and 1 in array.shape else array


def own_ids(ids: np.ndarray, where: object) -> np.ndarray | None:
    """The names of the nodes, one for each row; None if they are the numbers of the rows. Raises FormatError."""
    ids = plain_ids(ids.reshape(-1) if ids.ndim == 2 and ids.shape[1] == 1 else ids)
    if len(np.unique(ids)) < len(ids):
        raise FormatError(f"{where}: the ids of the nodes have one twice; expected each node once")
    return None if ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids))) else ids


def count_nodes(src: np.ndarray, dst: np.ndarray, per_node: list[RowReader | Csr | None], reporter: Reporter) -> int:
    """The rows of the first array with a row for each node, or one more than the largest id."""
    for array in per_node:
        if array is not None:
            return len(array.indptr) - 1 if isinstance(array, Csr) else array.shape[0]
    if src.ndim == dst.ndim == 1:
        warn_of_gaps((src, dst), largest(src, dst) + 1, RENUMBER, reporter)
    return largest(src, dst) + 1
