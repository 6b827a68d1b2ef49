"""Dropout whose mask is a function of (key, row id, column), so that it is recomputed and never stored.

The same call serves forwards (on activations) and backwards (on gradients), for a rank's own rows and for rows that
came from elsewhere. N. Srivastava et al., "Dropout", JMLR 15 (2014), in the inverted form: kept values are scaled up.
"""

import torch

from . import checks
from .library import kernels
from .randomness import checked_key

#: The types that may become rows of a type, if not that type alone.
_READ = {torch.float32: tuple(each for each in checks.READ if each != torch.float64)}


def rule(p: float) -> tuple[int, float]:
    """(threshold, scale): a word >= threshold keeps. The scale belongs to the rate that the threshold really has."""
    if not 0 <= p <= 1:
        raise ValueError(f"p: expected a probability in [0, 1], got {p!r}")
    threshold = round(p * 2**32)
    return threshold, (1 / (1 - threshold / 2**32) if threshold < 2**32 else 0.0)


def kept_scale(p: float) -> float:
    """Return the factor of kept values in `dropout`: 1 / (1 - p), with the rounded p."""
    return rule(p)[1]


def dropout(
    out: torch.Tensor,
    x: torch.Tensor,
    ids: torch.Tensor,
    key: int,
    p: float,
    index: torch.Tensor | None = None,
    part: torch.Tensor | None = None,
) -> None:
    """out[i, c] = x[i, c] / (1 - p) where the random word of (ids[i], c) keeps it, else 0.

    With `index` row i is of x[index[i]], and with `part` out[i] is part[i] times that and 1 - part[i] times the row as
    it was: rounded as torch's mul_ and addcmul_ round it.

    Args:
        out: (n, F), float32, float64 or bfloat16, rows contiguous. It may be x itself, without index, but must not
            overlap it otherwise.
        x: (n, F), or (m, F) with index; of out's dtype, or narrower if out is float32.
        ids: int64 (n,), original node ids.
        key: from `stream_key`.
        p: is rounded to a multiple of 2**-32; 0 drops nothing and 1 all.
        index: int32 (n,) in [0, m), not checked.
        part: (n,) of out's dtype.

    Raises:
        ValueError: a wrong dtype, shape, layout, key or p.
    """
    checks.matrix("out", out, checks.FLOATS)
    n, width = out.shape
    checks.matrix("x", x, _READ.get(out.dtype, (out.dtype,)), rows=n if index is None else None, columns=width)
    checks.vector("ids", ids, torch.int64, n)
    checks.vector("index", index, torch.int32, n, optional=True)
    checks.vector("part", part, out.dtype, n, optional=True)
    threshold, scale = rule(p)
    if 0 < threshold < 2**32:
        kernels().dropout(out, x, ids, checked_key(key), threshold, scale, index, part)
        checks.written(out)
        return
    if threshold and part is None:
        out.zero_()
        return
    if index is not None or out.data_ptr() != x.data_ptr():
        out.copy_(x if index is None else x[index])
    if threshold and part is not None:
        out.mul_(1 - part[:, None])


def dropout_entries(
    out: torch.Tensor,
    data: torch.Tensor,
    indptr: torch.Tensor,
    ids: torch.Tensor,
    columns: torch.Tensor,
    key: int,
    p: float,
) -> None:
    """Dropout of the stored entries of a sparse matrix, with the result of `dropout` for these entries when dense.

    out and data are (nnz,) of one dtype as above; out may be data itself. indptr is (n + 1,) int64 within [0, nnz], ids
    (n,) int64, columns (nnz,) int32, not negative. Entries outside [indptr[0], indptr[n]) are left alone.
    Raises ValueError for a wrong dtype, shape, layout, key or p.
    """
    if data.dtype not in checks.FLOATS:
        raise ValueError(f"data: expected float32, float64 or bfloat16, got {data.dtype}")
    checks.vector("data", data, data.dtype, None)
    checks.vector("out", out, data.dtype, data.shape[0])
    num_rows = checks.row_pointer(indptr)
    checks.vector("ids", ids, torch.int64, num_rows)
    checks.vector("columns", columns, torch.int32, data.shape[0])
    if int(indptr[0]) < 0 or int(indptr[-1]) > data.shape[0]:
        raise ValueError(f"indptr: expected values in [0, {data.shape[0]}], got {int(indptr[0])} to {int(indptr[-1])}")
    threshold, scale = rule(p)
    stored = slice(int(indptr[0]), int(indptr[-1]))
    if threshold == 0:
        if out.data_ptr() != data.data_ptr():
            out[stored] = data[stored]
    elif threshold == 2**32:
        out[stored] = 0
    else:
        kernels().dropout_entries(out, data, indptr, ids, columns, checked_key(key), threshold, scale)
        checks.written(out)
