"""Gather and pack, the two ways rows of a node matrix are read at random, and the adding of rows at random places.

`gather` is aggregation over a block of the adjacency; `pack` fills a send buffer; `add_rows` adds returned gradients.
All are bound by memory. So scalings are part of the same pass, and a missing edge weight is not read.
"""

import torch

from . import checks
from .library import kernels

_FAULTS = {
    "indptr_start": "indptr must start at 0 or above",
    "indptr_order": "indptr must not decrease",
    "indptr_end": "indptr must not exceed the number of indices",
    "row_range": "rows must lie in [0, num_rows)",
    "row_order": "rows must increase strictly",
    "index_range": "indices must lie in [0, num_sources)",
}


def gather(
    y: torch.Tensor,
    x: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    source_scale: torch.Tensor | None = None,
    row_scale: torch.Tensor | None = None,
    accumulate: bool = False,
) -> None:
    """Sums the rows of `x` that the edges of each stored row name, into `y`:

        y[r] (= or +=) row_scale[r] * sum over e of weight[e] * source_scale[indices[e]] * x[indices[e]]

    with e in [indptr[i], indptr[i+1]) and r = rows[i], or i where `rows` is None. Without `accumulate`, stored rows
    that have no edges become 0. Rows of y that are not stored are left alone.

    Sums are formed in float64 for float64 x, else in float32, in the order of the edges (longer rows in chunks of 8192
    edges). So results do not depend on the number of threads. The function does not record gradients, and does not
    check index ranges (see `check_block`). Raises ValueError for a wrong dtype, shape or layout, MemoryError.

    Args:
        y: (n_dst, F) float32 with float32, float16 or int8 x, float64 with float64 x, bfloat16 or float32 with
            bfloat16 x.
        x: (n_src, F); each row of x and y contiguous, rows any distance apart; must not overlap y.
        indptr: (R + 1,) int64; may start above 0, as a slice of a longer one does.
        indices: (E,) int32, E >= indptr[R].
        rows: (R,) int32, strictly increasing; None requires R == n_dst.
        weight, source_scale, row_scale: (E,), (n_src,), (n_dst,), or None; float64 with float64 x, else float32.
        accumulate: whether to add to y.
    """
    checks.matrix("x", x, checks.READ)
    y_dtypes = (torch.bfloat16, torch.float32) if x.dtype == torch.bfloat16 else (checks.accumulation_dtype(x.dtype),)
    checks.matrix("y", y, y_dtypes, columns=x.shape[1])
    num_stored = checks.row_pointer(indptr)
    checks.vector("indices", indices, torch.int32, None)
    checks.vector("rows", rows, torch.int32, num_stored, optional=True)
    if rows is None and num_stored != y.shape[0]:
        raise ValueError(f"indptr: expected {y.shape[0] + 1} entries for y's rows, got {num_stored + 1}; or pass rows")
    dtype = checks.accumulation_dtype(x.dtype)
    checks.vector("weight", weight, dtype, indices.shape[0], optional=True)
    checks.vector("source_scale", source_scale, dtype, x.shape[0], optional=True)
    checks.vector("row_scale", row_scale, dtype, y.shape[0], optional=True)
    kernels().gather(y, x, indptr, indices, rows, weight, source_scale, row_scale, bool(accumulate))
    checks.written(y)


def _packed_dtypes(dtype: torch.dtype, scaled: bool) -> tuple[torch.dtype, ...]:
    """The dtypes in which rows of a dtype can be sent. float16 and int8 are only moved or widened."""
    if dtype == torch.float64:
        return (torch.float64,)
    if dtype == torch.float32:
        return torch.float32, torch.bfloat16
    return (torch.float32,) if scaled and dtype not in checks.FLOATS else (dtype, torch.float32)


def pack(out: torch.Tensor, x: torch.Tensor, index: torch.Tensor, scale: torch.Tensor | None = None) -> None:
    """out[i] = scale[index[i]] * x[index[i]]: rows to send, scaled, and rounded or widened if `out` has another type.

    out (m, F) and x (n, F) are of one dtype (float32, float64, bfloat16; without scale also float16, int8). Or out is
    bfloat16 and x float32, or out is float32 and x narrower. index is (m,) int32 in [0, n), not checked. scale is (n,)
    float64 with float64 x, else float32. Raises ValueError for a wrong dtype, shape or layout.
    """
    checks.matrix("x", x, checks.READ)
    out_dtypes = _packed_dtypes(x.dtype, scale is not None)
    checks.vector("index", index, torch.int32, None)
    checks.matrix("out", out, out_dtypes, rows=index.shape[0], columns=x.shape[1])
    checks.vector("scale", scale, checks.accumulation_dtype(x.dtype), x.shape[0], optional=True)
    kernels().pack(out, x, index, scale)
    checks.written(out)


def add_rows(
    out: torch.Tensor,
    index: torch.Tensor,
    x: torch.Tensor,
    *,
    place: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    distinct: bool = False,
) -> None:
    """out[index[i]] += weight[i] * x[place[i]], for one i after another, as torch's index_add_ with one thread.

    Sums are formed in the order of i, whatever the number of threads.

    Args:
        out, x: (n, F) and (k, F) of one dtype (float32, float64, bfloat16); they must not overlap.
        index: (m,) int32 in [0, n), not checked.
        place: (m,) int32 in [0, k); None: x has m rows, taken in order.
        weight: (m,) float64 with float64 x, else float32.
        distinct: whether index has no row twice, for a better split of the work; not checked.

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    checks.matrix("out", out, checks.FLOATS)
    checks.vector("index", index, torch.int32, None)
    checks.vector("place", place, torch.int32, index.shape[0], optional=True)
    checks.matrix("x", x, (out.dtype,), rows=index.shape[0] if place is None else None, columns=out.shape[1])
    checks.vector("weight", weight, checks.accumulation_dtype(x.dtype), index.shape[0], optional=True)
    kernels().add_rows(out, index, x, place, weight, bool(distinct))
    checks.written(out)


def check_block(
    indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor | None, num_rows: int, num_sources: int
) -> None:
    """Checks that every index of a block is in range; `gather` does not check this.

    indptr (R + 1,) int64, indices (E,) int32, rows (R,) int32 or None. `num_rows` and `num_sources` are the numbers of
    rows of y and x. Raises ValueError naming the first fault and its place.
    """
    num_stored = checks.row_pointer(indptr)
    checks.vector("indices", indices, torch.int32, None)
    checks.vector("rows", rows, torch.int32, num_stored, optional=True)
    if rows is None and num_stored != num_rows:
        raise ValueError(f"indptr: expected {num_rows + 1} entries for {num_rows} rows, got {num_stored + 1}")
    fault, position = kernels().check_block(indptr, indices, rows, num_rows, num_sources)
    if fault:
        values = (
            indices if fault == "index_range" else rows if rows is not None and fault.startswith("row_") else indptr
        )
        window = values[max(0, position - 1) : position + 2].tolist()
        raise ValueError(
            f"block: {_FAULTS[fault]} (num_rows {num_rows}, num_sources {num_sources}, {indices.numel()} indices); "
            f"first wrong at position {position}, near {window}"
        )
