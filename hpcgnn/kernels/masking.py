"""Dropout whose mask is a function of (key, row id, column), so that it is recomputed and never stored.

The same call serves forwards (on activations) and backwards (on gradients), for a rank's own rows and for rows that
came from elsewhere. N. Srivastava et al., "Dropout", JMLR 15 (2014), in the inverted form: kept values are scaled up.
"""

from typing import Any

import torch

from .aggregation import PIECE
from .kernel import Arguments, accumulation_dtype, kernel
from .randomness import checked_key, philox, random_words

_LOW = 0xFFFFFFFF


def rule(p: float) -> tuple[int, float]:
    """(threshold, scale): a word >= threshold keeps. The scale belongs to the rate that the threshold really has."""
    if not 0 <= p <= 1:
        raise ValueError(f"p: expected a probability in [0, 1], got {p!r}")
    threshold = round(p * 2**32)
    return threshold, (1 / (1 - threshold / 2**32) if threshold < 2**32 else 0.0)


def kept_scale(p: float) -> float:
    """Return the factor of kept values in `dropout`: 1 / (1 - p), with the rounded p."""
    return rule(p)[1]


def _drop(x: torch.Tensor, words: torch.Tensor, a: Arguments) -> torch.Tensor:
    kept = (x.to(accumulation_dtype(x.dtype)) * a.scale).to(x.dtype)
    return torch.where(words >= a.threshold, kept, torch.zeros((), dtype=x.dtype))


@kernel(
    "hg_dropout",
    {
        "out": "written number (num, width)",
        "x": "source of out (rows, width)",
        "ids": "int64 [num]",
        "index": "optional int32 [num]",
        "part": "optional type of out [num]",
        "key": ...,
        "threshold": ...,
        "scale": ...,
    },
    without=(("index", "rows", "num", "x"),),
)
def _dropout(a: Arguments) -> None:
    step = max(1, PIECE // (8 * max(1, a.x.shape[1])))
    for first in range(0, len(a.ids), step):
        piece = slice(first, first + step)
        rows = (a.x[piece] if a.index is None else a.x[a.index[piece]]).to(a.out.dtype)
        left = _drop(rows, random_words(a.key, a.ids[piece], a.x.shape[1]), a)
        if a.part is not None:
            mine = a.part[piece, None]
            left.mul_(mine).addcmul_(rows, 1 - mine)
        a.out[piece] = left


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
    threshold, scale = rule(p)
    some = 0 < threshold < 2**32
    given: dict[str, Any] = {"out": out, "x": x, "ids": ids, "index": index, "part": part}
    given |= {"key": checked_key(key) if some else 0, "threshold": threshold, "scale": scale}
    if some:
        _dropout(**given)
        return
    _dropout.check(**given)
    if threshold and part is None:
        out.zero_()
        return
    if index is not None or out.data_ptr() != x.data_ptr():
        out.copy_(x if index is None else x[index])
    if threshold and part is not None:
        out.mul_(1 - part[:, None])


@kernel(
    "hg_dropout_entries",
    {
        "out": "written type of data [entries]",
        "data": "number [entries]",
        "indptr": "int64 [num_rows + 1]",
        "ids": "int64 [num_rows]",
        "columns": "int32 [entries]",
        "key": ...,
        "threshold": ...,
        "scale": ...,
    },
)
def _dropout_entries(a: Arguments) -> None:
    begin, end, step = int(a.indptr[0]), int(a.indptr[-1]), PIECE // 8
    for first in range(begin, end, step):
        entries = torch.arange(first, min(first + step, end))
        entry_ids = a.ids[torch.searchsorted(a.indptr, entries, right=True) - 1]
        column = a.columns[entries].to(torch.int64)
        counters = torch.stack(
            [column >> 2, entry_ids & _LOW, (entry_ids >> 32) & _LOW, torch.zeros_like(column)], dim=-1
        )
        words = philox(counters, a.key).gather(1, (column & 3)[:, None])[:, 0]
        a.out[entries] = _drop(a.data[entries], words, a)


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
    threshold, scale = rule(p)
    given: dict[str, Any] = {"out": out, "data": data, "indptr": indptr, "ids": ids, "columns": columns}
    given |= {"key": checked_key(key), "threshold": threshold, "scale": scale}
    _dropout_entries.check(**given)
    first, last = int(indptr[0]), int(indptr[-1])
    if first < 0 or last > len(data):
        raise ValueError(f"indptr: expected values in [0, {len(data)}], got {first} to {last}")
    stored = slice(first, last)
    if threshold == 0:
        if out.data_ptr() != data.data_ptr():
            out[stored] = data[stored]
    elif threshold == 2**32:
        out[stored] = 0
    else:
        _dropout_entries(**given)
