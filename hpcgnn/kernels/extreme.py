"""The elementwise maximum of neighbours' rows, and the sums of its gradient.

Equal elements share the gradient evenly, as in torch.amax. This rule does not depend on the order of the edges, and so
neither on the partition nor on the number of ranks. After a ReLU many neighbours are zero, so the rule matters.
"""

import torch

from . import checks
from .library import kernels

_FLOATS = (torch.float32, torch.float64)


def _structure(indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor | None, num_rows: int) -> None:
    num_stored = checks.row_pointer(indptr)
    checks.vector("indices", indices, torch.int32, None)
    checks.vector("rows", rows, torch.int32, num_stored, optional=True)
    if rows is None and num_stored != num_rows:
        raise ValueError(f"indptr: expected {num_rows + 1} entries for y's rows, got {num_stored + 1}; or pass rows")


def gather_largest(
    y: torch.Tensor,
    count: torch.Tensor,
    x: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
) -> None:
    """Takes the edges of one block into the largest elements of the rows it stores:

        y[r, c]     = max(itself, x[indices[e], c] over e)
        count[r, c] = number of edges of all blocks so far with that element

    with e in [indptr[i], indptr[i+1]) and r = rows[i], or i where `rows` is None.

    Args:
        y, count: (n_dst, F) float32 or float64; before the first block y is -inf and count 0.
        x: (n_src, F) of the same dtype; rows of all three contiguous, any distance apart.
        indptr, indices, rows: (R + 1,) int64, (E,) int32, and (R,) int32 increasing or None.

    A NaN stays, and its count means nothing. Ranges of indices are not checked. Raises ValueError for a wrong dtype,
    shape or layout.
    """
    checks.matrix("y", y, _FLOATS)
    checks.matrix("count", count, (y.dtype,), rows=y.shape[0], columns=y.shape[1])
    checks.matrix("x", x, (y.dtype,), columns=y.shape[1])
    _structure(indptr, indices, rows, y.shape[0])
    kernels().gather_largest(y, count, x, indptr, indices, rows)
    checks.written(y)
    checks.written(count)


def gather_matching(
    y: torch.Tensor,
    own: torch.Tensor,
    x: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
) -> None:
    """Sums the gradients of equal elements: y[r, c] += sum over e of g[j, c] where value[j, c] == own[r, c].

    Here [g | value] = x, j = indices[e], e in [indptr[i], indptr[i+1]) and r = rows[i], or i where `rows` is None. It
    gives the gradient of `gather_largest` at the owner of the sources. For this, `value` has the largest elements, and
    g their gradients divided by their counts.

    Other arguments are as for `gather_largest`.

    Args:
        y, own: (n, F) float32 or float64; y is added to.
        x: (n_cols, 2 F) of the same dtype; rows contiguous, any distance apart.
    """
    checks.matrix("y", y, _FLOATS)
    checks.matrix("own", own, (y.dtype,), rows=y.shape[0], columns=y.shape[1])
    checks.matrix("x", x, (y.dtype,), columns=2 * y.shape[1])
    _structure(indptr, indices, rows, y.shape[0])
    kernels().gather_matching(y, own, x, indptr, indices, rows)
    checks.written(y)
