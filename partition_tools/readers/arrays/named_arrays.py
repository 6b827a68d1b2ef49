"""Graphs as named arrays, in the two usual vocabularies of graph data.

The arrays may be in an archive, or in the memory of a program that calls `partition_tools.from_pyg`.

* `edge_index` int (2, E), row 0 the sources and row 1 the destinations; `x` (n, F) or the CSR pieces `x_indptr`,
  `x_indices`, `x_data`, `x_shape`; `y`
* `src`, `dst` int (E,); `feat` (n, F); `label`
* `adj_indptr`, `adj_indices`, `adj_data`, `adj_shape` of a CSR matrix, source to destination, and `attr_indptr`, … of
  features, as in the archives of Shchur et al. (gnn-benchmark)

Each with optional `edge_weight`, `edge_type`, `edge_attr` (E,) or (E, F_e), `num_classes`, `num_nodes`, `node_type`
int (n,), splits as masks (`train_mask`) or lists of nodes (`train_idx`), held-out edges (`val_edge`, see `links`), and
the names of types and classes as arrays of strings, `edge_type_names`, `node_type_names`, `class_names`. Other arrays
are refused or named (`npz_names`).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import Csr
from partition_tools.canonical.features import check_turned
from partition_tools.graph.counts import largest, stated, warn_of_gaps
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import Arrays
from partition_tools.readers.arrays.in_memory import InMemory, as_links, plain_ids
from partition_tools.readers.arrays.npz_names import held_out, meaning_of, refuse_unread, split_of, splits
from partition_tools.readers.arrays.renamed import Renamed
from partition_tools.readers.tables.node_tables import label_numbers
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.progress import Reporter

ENDS = ("edge_index", "src")
FEATURES = ("x", "feat", "feats", "features", "node_feat")
RENUMBER = (
    "state num_nodes if they are meant, else number the nodes: "
    "numpy.unique(edge_index, return_inverse=True)[1].reshape(2, -1)"
)
EDGE_FEATURES = ("edge_attr", "edge_feat", "edge_feats", "edge_features", "efeat")
IDS = ("n_id", "node_ids", "node_id", "nid", "original_id", "original_ids", "ids", "id")
LABELS = ("y", "label", "labels", "node_label")
_MATRICES = ("adj", "adjacency", "adj_matrix", "adj_mat", "a")
_OF_MATRIX = "; of a matrix with a row and a column for each node: edge_index = numpy.stack(numpy.nonzero({}))"
_RENAME = "; --rename OLD=NEW gives arrays the names that are read"


def graph_of(archive: Arrays, tables: TableOptions, reporter: Reporter) -> RawGraph:
    """The `RawGraph` of named arrays. Raises FormatError naming what is missing, and what is there but would not be
    read.
    """
    path = archive.path
    if tables.rename:
        if isinstance(archive, InMemory) and "node_type_names" in archive.files:
            raise FormatError(f"{path}: --rename is for graphs of one type; rename in the program that wrote the file")
        archive = Renamed(archive, dict(tables.rename))
    names = [name for name in archive.files if name not in tables.ignore]
    if unknown := [name for name in tables.ignore if name not in archive.files]:
        raise FormatError(f"{path} has no array {unknown[0]} to --ignore; it has {', '.join(archive.files)}")
    used = set()

    def get(*synonyms: str, single: bool = False) -> Any:
        """The one array of these names that is there, or None."""
        there = [name for name in synonyms if name in names]
        if len(there) > 1:
            raise FormatError(
                f"{path} holds {' and '.join(there)}, which mean the same; leave one out with --ignore {there[1]}"
            )
        if not there:
            return None
        used.update(there)
        array: Any = archive.array(there[0])
        if single:
            return stated(array, f"{path}: {there[0]}")
        if array.ndim == 0:
            raise FormatError(f"{path}: {there[0]} is a single value, expected an array of them")
        return array

    matrix = None if {"edge_index", "src"} & set(names) else _sparse(path, get, "adj")
    weight = get("edge_weight")
    if "edge_index" in names:
        ends = get("edge_index")
        if ends.ndim != 2 or ends.shape[0] != 2:
            turned, square = (ends.ndim == 2 and wanted == ends.shape[1] for wanted in (2, ends.shape[0]))
            hint = "; turn it: edge_index.T" if turned else _OF_MATRIX.format("edge_index") if square else ""
            raise FormatError(f"{path}: edge_index must have shape (2, E), got {ends.shape}{hint}")
        src, dst = ends
    elif {"src", "dst"} <= set(names):
        src, dst = get("src"), get("dst")
    elif matrix is not None:
        src, dst, weight = _edges_of(path, matrix)
    else:
        raise FormatError(
            f"{path} has neither edge_index nor src and dst; it has {', '.join(archive.files) or 'nothing'}"
            f"{next((_OF_MATRIX.format(name) for name in names if name.lower() in _MATRICES), _RENAME)}"
        )
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu":
        raise FormatError(f"{path}: ends of edges must be integers, got {src.dtype}; edge_index.astype(numpy.int64)")
    labels, features = get(*LABELS), _features(path, get)
    members = {name: get(name) for name in names if split_of(name)}
    links: dict[str, dict[str, np.ndarray]] = {}
    for name in names:
        if (found := held_out(name)) is not None:
            split, part, turned = found
            if part in links.setdefault(split, {}):
                raise FormatError(f"{path} holds {name} and another array that means the same; leave one out: --ignore")
            links[split][part] = get(name).T if turned else get(name)
    num_classes, num_nodes = get("num_classes", single=True), get("num_nodes", single=True)
    edge_features = get(*EDGE_FEATURES)
    if matrix is not None:
        num_nodes = matrix.num_columns
    kind, node_type = get("edge_type"), get("node_type")
    type_names = {"nodes": get("node_type_names"), "edges": get("edge_type_names"), "classes": get("class_names")}
    ids = get(*IDS)
    refuse_unread(path, [name for name in names if name not in used], reporter)
    type_names = {what: given.tolist() for what, given in type_names.items() if given is not None}
    if labels is not None:
        labels, words = label_numbers(labels, f"{path}: the labels")
        if words and "classes" in type_names:
            raise FormatError(
                f"{path} holds class_names beside labels that are words; leave them out with --ignore class_names"
            )
        type_names |= {"classes": words} if words else {}
    if ids is not None:
        ids = _ids(path, ids, "n_id" not in used)
    masks = [array for name, array in members.items() if meaning_of(name)[1] == "mask" or array.dtype == bool]
    check_turned(features, (labels, node_type, *masks))
    n = _count_nodes(src, dst, features, (labels, node_type, ids, *masks), num_nodes, reporter)
    return RawGraph(
        src=src,
        dst=dst,
        num_nodes=n,
        features=features,
        labels=labels,
        split=splits(path, members, n, tables.split_column),
        num_classes=num_classes,
        weight=weight,
        type=kind,
        source=path.stem,
        node_type=node_type,
        type_names=type_names,
        edge_features=edge_features,
        links=as_links(links, str(path)),
        ids=ids,
    )


def _ids(path: Path, ids: np.ndarray, doubtful: bool) -> np.ndarray | None:
    """The names of the nodes, from an array of one id for each row. doubtful: the edges may name these ids, too.

    The edges of these formats name rows. If ids are the numbers of the rows in another order, both readings are a
    graph, and FormatError asks.
    """
    ids = plain_ids(ids.reshape(-1) if ids.ndim == 2 and ids.shape[1] == 1 else ids)
    if len(np.unique(ids)) < len(ids):
        raise FormatError(f"{path}: the ids of the nodes have one twice; expected each node once")
    if ids.dtype.kind in "iu" and np.array_equal(np.sort(ids), np.arange(len(ids))):
        if np.array_equal(ids, np.arange(len(ids))):
            return None
        if doubtful:
            raise FormatError(
                f"{path} holds ids of nodes that are 0..{len(ids) - 1} in another order: it does not say whether the "
                "edges name ids or rows. If they name ids, give them to partition_tools.save_graph as node_ids, else "
                "call the array n_id"
            )
    return ids


def _features(path: Path, get: Callable[..., Any]) -> np.ndarray | Csr | None:
    dense = get(*FEATURES)
    sparse = [found for found in (_sparse(path, get, what) for what in ("x", "attr")) if found is not None]
    if dense is not None and sparse:
        raise FormatError(f"{path} holds dense features and sparse ones (x_indptr, ...); leave one out with --ignore")
    if len(sparse) > 1:
        raise FormatError(f"{path} holds features as x_indptr, … and as attr_indptr, …; leave one out with --ignore")
    return sparse[0] if sparse else dense


def _sparse(path: Path, get: Callable[..., Any], what: str) -> Csr | None:
    """The matrix in the arrays what_indptr, what_indices, what_data, what_shape; None without them."""
    parts = [get(f"{what}_{name}") for name in ("indptr", "indices", "data", "shape")]
    if all(part is None for part in parts):
        return None
    if parts[0] is None or parts[1] is None or parts[3] is None:
        raise FormatError(
            f"{path}: a sparse matrix needs {what}_indptr, {what}_indices and {what}_shape (and {what}_data, else ones)"
        )
    shape = parts[3].reshape(-1)
    if len(shape) != 2:
        raise FormatError(f"{path}: {what}_shape must hold two numbers, rows and columns, got {len(shape)}")
    if stated(shape[0], f"{path}: the first number of {what}_shape") != len(parts[0]) - 1:
        raise FormatError(f"{path}: {what}_shape states {shape[0]} rows, but {what}_indptr has {len(parts[0]) - 1}")
    for name, part in zip((f"{what}_indptr", f"{what}_indices"), parts[:2], strict=True):
        if part.ndim != 1 or part.dtype.kind not in "iu":
            raise FormatError(f"{path}: {name} must be a vector of integers, got {part.dtype}{list(part.shape)}")
    if parts[2] is not None and (parts[2].ndim != 1 or parts[2].dtype.kind not in "iufb"):
        raise FormatError(
            f"{path}: {what}_data must be a vector of numbers, got {parts[2].dtype}{list(parts[2].shape)}"
        )
    return Csr(parts[0], parts[1], parts[2], stated(shape[1], f"{path}: the second number of {what}_shape"))


def _edges_of(path: Path, matrix: Csr) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(sources, destinations, weights or None) of a square matrix, a row for each source."""
    indptr, rows = matrix.indptr.astype(np.int64), len(matrix.indptr) - 1
    if rows != matrix.num_columns or indptr[0] != 0 or indptr[-1] != len(matrix.indices) or (np.diff(indptr) < 0).any():
        raise FormatError(
            f"{path}: adj_indptr and adj_indices must be a square matrix by rows, got {rows} rows, "
            f"{matrix.num_columns} columns, {len(matrix.indices)} entries"
        )
    weights = None if matrix.data is None or (matrix.data == 1).all() else matrix.data
    return np.repeat(np.arange(rows), np.diff(indptr)), matrix.indices, weights


def _count_nodes(
    src: np.ndarray,
    dst: np.ndarray,
    features: np.ndarray | Csr | None,
    others: Iterable[np.ndarray | None],
    num_nodes: int | None,
    reporter: Reporter,
) -> int:
    """Stated, or the length of the first per-node array there is, or one more than the largest id."""
    if num_nodes is not None:
        return num_nodes
    if features is not None:
        return len(features.indptr) - 1 if isinstance(features, Csr) else len(features)
    for array in others:
        if array is not None:
            return len(array)
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu":
        raise FormatError(f"node ids must be integers, got {src.dtype} and {dst.dtype}")
    if src.ndim == dst.ndim == 1:
        warn_of_gaps((src, dst), largest(src, dst) + 1, RENUMBER, reporter)
    return largest(src, dst) + 1
