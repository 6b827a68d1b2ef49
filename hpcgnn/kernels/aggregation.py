"""Gather and pack, the two ways rows of a node matrix are read at random, and the adding of rows at random places.

`gather` is aggregation over a block of the adjacency; `pack` fills a send buffer; `add_rows` adds what came back. All
are bound by memory, so scalings ride along instead of taking passes of their own, and no edge weight is read where
there is none.
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

    y             (n_dst, F) float32 with float32 x, float64 with float64 x, bfloat16 or float32 with bfloat16 x
    x             (n_src, F); each row of x and y contiguous, rows any distance apart; must not overlap y
    indptr        (R + 1,) int64; may start above 0, as a slice of a longer one does
    indices       (E,) int32, E >= indptr[R]
    rows          (R,) int32, strictly increasing; None requires R == n_dst
    weight        (E,), source_scale (n_src,), row_scale (n_dst,): float64 with float64 x, else float32

    Sums are formed in float64 for float64 x, else in float32, in the order of the edges (rows of more than 8192 edges
    in chunks of that many): results do not depend on the number of threads. Neither autograd nor index ranges are
    looked after: see `check_block` for the latter. Raises ValueError for a wrong dtype, shape or layout, MemoryError.
    """
    checks.matrix("x", x, checks.FLOATS)
    y_dtypes = (torch.bfloat16, torch.float32) if x.dtype == torch.bfloat16 else (x.dtype,)
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


def pack(out: torch.Tensor, x: torch.Tensor, index: torch.Tensor, scale: torch.Tensor | None = None) -> None:
    """out[i] = scale[index[i]] * x[index[i]]: rows to send, scaled, and narrowed if `out` is bfloat16 and x float32.

    out (m, F), x (n, F) of one dtype (float32, float64, bfloat16) or out bfloat16 with x float32; index (m,) int32 in
    [0, n), not checked; scale (n,) float64 with float64 x, else float32. Raises ValueError for a wrong dtype, shape
    or layout.
    """
    checks.matrix("x", x, checks.FLOATS)
    out_dtypes = (torch.float32, torch.bfloat16) if x.dtype == torch.float32 else (x.dtype,)
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
    """out[index[i]] += weight[i] * x[place[i]], for one i after another: what torch's index_add_ does with one thread.

    out (n, F) and x (k, F) of one dtype (float32, float64, bfloat16), which must not overlap; index (m,) int32 in
    [0, n), not checked; place (m,) int32 in [0, k), None: x has m rows, taken in order; weight (m,) float64 with
    float64 x, else float32; distinct: whether no row of out is named twice, which is taken on trust and shares the work
    out better. Sums are formed in the order of i, whatever the number of threads. Raises ValueError for a wrong dtype,
    shape or layout.
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
    """Checks once what `gather` takes for granted at every call: that every index of a block is in range.

    indptr (R + 1,) int64, indices (E,) int32, rows (R,) int32 or None; `num_rows` and `num_sources` are the numbers
    of rows of the y and x to come. Raises ValueError naming the first fault and where it is.
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
