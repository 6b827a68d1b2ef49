"""Node features on their way into the file: dense rows or sparse rows, checked and normalised slab by slab.

Features are most of the bytes of a graph. They may be generated or memory-mapped, so this module reads one slab at a
time. Wide sparse ones (bags of words) stay sparse.
"""

import numpy as np
import scipy
from numpy.typing import DTypeLike

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.narrow import rounded
from hpcgnn.graphfile.schema import RowReader
from hpcgnn.graphfile.storage import Csr
from partition_tools.canonical.codes import in_bytes
from partition_tools.canonical.column_scales import mean_and_deviation
from partition_tools.canonical.precision import PrecisionLoss
from partition_tools.canonical.rows import RowMap, numbered
from partition_tools.graph.raw import DataError, check_finite
from partition_tools.workspace.progress import Reporter

#: As arrays have them: numbers for bfloat16 are float32 that bfloat16 has.
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": np.float32, "int8": np.int8}


def canonical_features(
    features: RowReader | Csr | None,
    num_nodes: int,
    dtype: str,
    row_normalize: bool,
    reporter: Reporter,
    standardize: np.ndarray | None = None,
) -> RowReader | Csr | None:
    """Features as `write_graph` takes them: an array-like of a type of DTYPES (n, F), a `Csr` with float32 data, or
    None. Numbers that int8 does not have become `Codes`.

    row_normalize: divide each row by the sum of its absolute values (rows of zeros stay). standardize: bool (n,), the
    training nodes; their mean and deviation standardise each column. None: columns stay. GraphError for NaN or
    infinity, also where fp16 makes one.
    """
    if features is None:
        return None
    if row_normalize and standardize is not None:
        raise ConfigError("features.row_normalize and features.standardize undo each other; expected one of them")
    if isinstance(features, Csr):
        if standardize is not None:
            raise GraphError(
                "features.standardize: sparse features would have no zeros, and many times their size; expected "
                "dense ones; use features.row_normalize, or leave it out"
            )
        if dtype != "fp32":
            reporter.warn(f"sparse features are stored as fp32; features.dtype={dtype} is for dense ones")
        return _sparse(features, num_nodes, row_normalize, reporter)
    if len(features.shape) != 2 or features.shape[0] != num_nodes:
        raise GraphError(
            f"expected one row of features for each of {num_nodes} nodes, got shape {tuple(features.shape)}"
        )
    if features.dtype.kind not in "iufb":
        raise GraphError(f"features must be numbers, got {features.dtype}")
    if features.shape[1] == 0:
        raise GraphError("the features have no columns; leave them out, or give each node at least one")
    target = np.dtype(np.float32 if dtype == "int8" else DTYPES[dtype])
    changes = row_normalize or standardize is not None
    halved = dtype == "bf16"
    loss = None if changes or dtype == "int8" else PrecisionLoss("features", "node", features.shape[1], target)
    source = features
    if standardize is not None:
        mean, deviation = mean_and_deviation(source, standardize)

        def standard(rows: np.ndarray) -> np.ndarray:
            return _convert((rows.astype(np.float64) - mean) / deviation, target, False, halved)

        features = RowMap(source, standard, target)
    elif row_normalize or halved or (dtype != "int8" and features.dtype != target):
        features = RowMap(features, lambda rows: _convert(rows, target, row_normalize, halved), target)
    if dtype == "int8":
        return in_bytes(features, lambda rows, first: _check_rows(rows, first, target), reporter)
    _check_finite(source, features, loss)
    if loss is not None:
        loss.tell(reporter)
    return features


def _convert(rows: np.ndarray, dtype: DTypeLike, row_normalize: bool, halved: bool) -> np.ndarray:
    if row_normalize:
        rows = rows.astype(np.float32)
        sums = np.abs(rows).sum(axis=1, dtype=np.float64, keepdims=True)
        rows = rows / np.where(sums > 0, sums, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = rows.astype(dtype)
        return rounded(rows) if halved else rows


def _check_finite(source: RowReader, features: RowReader, loss: PrecisionLoss | None) -> None:
    for row, before in numbered(source):
        slab = features.function(before) if isinstance(features, RowMap) and features.source is source else before
        _check_rows(slab, row, features.dtype)
        if loss is not None:
            loss.add(before, slab)


def _check_rows(rows: np.ndarray, first: int, dtype: DTypeLike) -> None:
    """Raise DataError for NaN and infinity in the rows of nodes `first`, ... that have become numbers of a type."""
    hint = " (the largest fp16 number is 65504)" if dtype == np.float16 else ""
    check_finite(rows, range(first, first + len(rows)), f" as {np.dtype(dtype)}{hint}")


def _sparse(features: Csr, num_nodes: int, row_normalize: bool, reporter: Reporter) -> Csr:
    indptr, indices = np.asarray(features.indptr, np.int64), np.asarray(features.indices)
    columns = int(features.num_columns)
    data = np.ones(len(indices), np.float32) if features.data is None else np.array(features.data, np.float32)
    if len(indptr) != num_nodes + 1:
        raise GraphError(f"expected sparse features of {num_nodes} rows, got {len(indptr) - 1}")
    try:
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=(num_nodes, columns))
        matrix.check_format()
    except ValueError as error:
        raise GraphError(f"sparse features of {columns} columns are inconsistent: {error}") from error
    if not np.isfinite(data).all():
        entry = int(np.argmin(np.isfinite(data)))
        node, text = int(np.searchsorted(indptr, entry, side="right")) - 1, "has a feature that is NaN or infinite"
        raise DataError(node, f"{text}; mend or remove it first", "features", int(indices[entry]))
    if features.data is not None and not row_normalize:
        loss = PrecisionLoss("sparse features", "entry", 1, np.float32)
        loss.add(np.asarray(features.data)[:, None], data[:, None])
        loss.tell(reporter)
    matrix.sort_indices()
    data = matrix.data
    if row_normalize:
        row = np.repeat(np.arange(num_nodes), np.diff(indptr))
        sums = np.bincount(row, np.abs(data), num_nodes)
        data = (data / np.where(sums > 0, sums, 1)[row]).astype(np.float32)
    return Csr(indptr, matrix.indices.astype(np.int32), data, columns)
