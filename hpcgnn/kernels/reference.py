"""The kernels in plain torch: what the compiled ones must agree with, and what serves where none could be compiled.

Written for clarity, with one concession to use at scale: `gather` expands the edges in pieces, so that its extra memory is
bounded and not (edges, width). Arguments arrive checked. Random words and dropout agree with the compiled kernels bit
for bit; sums agree to rounding, because they are formed in another order.
"""

import torch

_PIECE = 1 << 22  # elements of an expanded piece of edges: 16 MiB of float32

_MASK = 0xFFFFFFFF


def gather(y, x, indptr, indices, rows, weight, source_scale, row_scale, accumulate) -> None:
    num_stored, width = indptr.numel() - 1, x.shape[1]
    acc_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    begin, end = int(indptr[0]), int(indptr[-1])
    sums = torch.zeros(num_stored, width, dtype=acc_dtype)
    step = max(1, _PIECE // max(1, width))
    for first in range(begin, end, step):
        edges = torch.arange(first, min(first + step, end))
        sources = indices[edges]
        message = x[sources].to(acc_dtype)
        if weight is not None or source_scale is not None:
            coefficient = torch.ones(edges.numel(), dtype=acc_dtype) if weight is None else weight[edges]
            if source_scale is not None:
                coefficient = coefficient * source_scale[sources]
            message = message * coefficient[:, None]
        sums.index_add_(0, torch.searchsorted(indptr, edges, right=True) - 1, message)
    target = torch.arange(num_stored) if rows is None else rows.to(torch.int64)
    if row_scale is not None:
        sums *= row_scale[target, None]
    if accumulate:
        sums += y[target].to(acc_dtype)
    y[target] = sums.to(y.dtype)


def pack(out, x, index, scale) -> None:
    taken = x[index]
    if scale is not None:
        taken = taken.to(scale.dtype) * scale[index][:, None]
    out.copy_(taken)


def check_block(indptr, indices, rows, num_rows, num_sources) -> tuple[str, int]:
    """The name of the first fault ("" if none) and its position, as the compiled function reports them."""

    def first(bad: torch.Tensor) -> int | None:
        return int(bad.to(torch.int8).argmax()) if bool(bad.any()) else None

    if int(indptr[0]) < 0:
        return "indptr_start", 0
    if (at := first(indptr[1:] < indptr[:-1])) is not None:
        return "indptr_order", at
    if int(indptr[-1]) > indices.numel():
        return "indptr_end", indptr.numel() - 1
    if rows is not None:
        outside = first((rows < 0) | (rows >= num_rows))
        unordered = first(rows[1:] <= rows[:-1])
        if outside is not None and (unordered is None or outside <= unordered + 1):
            return "row_range", outside
        if unordered is not None:
            return "row_order", unordered + 1
    used = indices[int(indptr[0]) : int(indptr[-1])]
    if (at := first((used < 0) | (used >= num_sources))) is not None:
        return "index_range", int(indptr[0]) + at
    return "", 0


def philox(counters: torch.Tensor, key: int) -> torch.Tensor:
    """Philox4x32-10 (Salmon et al., SC'11): int64 counters (..., 4) of 32-bit values to words of the same shape.

    `key` has 64 bits, its low half being the cipher's first key word. Products wrap in int64, which leaves the 64 bits
    that are wanted.
    """
    c0, c1, c2, c3 = counters.unbind(-1)
    k0, k1 = key & _MASK, key >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK, ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return torch.stack([c0, c1, c2, c3], dim=-1)


def random_words(key, ids, columns) -> torch.Tensor:
    num_groups = (columns + 3) // 4
    counters = torch.zeros(ids.numel(), num_groups, 4, dtype=torch.int64)
    counters[..., 0] = torch.arange(num_groups)
    counters[..., 1] = (ids & _MASK)[:, None]
    counters[..., 2] = ((ids >> 32) & _MASK)[:, None]
    return philox(counters, key).reshape(ids.numel(), 4 * num_groups)[:, :columns].contiguous()


def _drop(x: torch.Tensor, words: torch.Tensor, threshold: int, scale: float) -> torch.Tensor:
    acc_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return torch.where(words >= threshold, (x.to(acc_dtype) * scale).to(x.dtype), torch.zeros((), dtype=x.dtype))


def dropout(out, x, ids, key, threshold, scale) -> None:
    step = max(1, _PIECE // (8 * max(1, x.shape[1])))
    for first in range(0, ids.numel(), step):
        piece = slice(first, first + step)
        out[piece] = _drop(x[piece], random_words(key, ids[piece], x.shape[1]), threshold, scale)


def dropout_entries(out, data, indptr, ids, columns, key, threshold, scale) -> None:
    begin, end, step = int(indptr[0]), int(indptr[-1]), _PIECE // 8
    for first in range(begin, end, step):
        entries = torch.arange(first, min(first + step, end))
        entry_ids = ids[torch.searchsorted(indptr, entries, right=True) - 1]
        column = columns[entries].to(torch.int64)
        counters = torch.stack(
            [column >> 2, entry_ids & _MASK, (entry_ids >> 32) & _MASK, torch.zeros_like(column)], dim=-1
        )
        words = philox(counters, key).gather(1, (column & 3)[:, None])[:, 0]
        out[entries] = _drop(data[entries], words, threshold, scale)
