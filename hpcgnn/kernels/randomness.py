"""Random numbers that are a function of their purpose and place, not of earlier draws, and dropout by them.

A word is determined by a stream's key and the place (row id, column) it belongs to. Hence every rank can recompute the
words of any row, in any order. Dropout masks need not be stored or sent, and a training curve does not depend on the
number of ranks. The generator is Philox4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
numbers: as easy as 1, 2, 3", SC'11), keyed by 64 bits that `stream_key` mixes from seed, epoch, layer, purpose.

Dropout is the same call forwards (on activations) and backwards (on gradients), for a rank's own rows and for rows that
came from elsewhere. N. Srivastava et al., "Dropout", JMLR 15 (2014), in the inverted form: kept values are scaled up.
"""

import torch

from .aggregation import PIECE
from .kernel import Arguments, accumulation_dtype, kernel

_MASK = (1 << 64) - 1
_LOW = 0xFFFFFFFF


def stream_key(seed: int, *parts: int) -> int:
    """A 64-bit key from integers, e.g. stream_key(seed, epoch, layer, purpose).

    Order and number of the parts matter; negative numbers count modulo 2**64. Each part, and the key with it, goes
    through SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014), a bijection of 64 bits in which every bit counts.
    Raises TypeError for anything but integers.
    """
    key = 0
    for part in (seed, *parts):
        z = part
        for before in (0, key + 0x9E3779B97F4A7C15):
            z = (z + before) & _MASK
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
            z ^= z >> 31
        key = z
    return key


def philox(counters: torch.Tensor, key: int) -> torch.Tensor:
    """Philox4x32-10 (Salmon et al., SC'11) in torch: int64 counters (..., 4) of 32-bit values to words of the same
    shape.

    `key` has 64 bits, its low half being the cipher's first key word. Products wrap in int64, which leaves the 64 bits
    that are wanted.
    """
    c0, c1, c2, c3 = counters.unbind(-1)
    k0, k1 = key & _LOW, key >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return torch.stack([c0, c1, c2, c3], dim=-1)


@kernel("hg_random_words", {"words": "contiguous int64 (num, columns)", "ids": "int64 [num]", "key": 0})
def _random_words(a: Arguments) -> None:
    num_groups = (a.words.shape[1] + 3) // 4
    counters = torch.zeros(len(a.ids), num_groups, 4, dtype=torch.int64)
    counters[..., 0] = torch.arange(num_groups)
    counters[..., 1] = (a.ids & _LOW)[:, None]
    counters[..., 2] = ((a.ids >> 32) & _LOW)[:, None]
    a.words.copy_(philox(counters, a.key).reshape(len(a.ids), 4 * num_groups)[:, : a.words.shape[1]])


def random_words(key: int, ids: torch.Tensor, columns: int) -> torch.Tensor:
    """The words of rows `ids` (n,) int64 and columns 0 .. columns-1: (n, columns) int64 with values in [0, 2**32).

    The word of (id, c) is word c % 4 of Philox4x32-10 at the counter (c // 4, id mod 2**32, id >> 32, 0). Raises
    ValueError for a wrong key, dtype or shape.
    """
    words = torch.empty(len(ids), columns, dtype=torch.int64)
    _random_words(words, ids, key)
    return words


def rule(p: float) -> tuple[int, float]:
    """(threshold, scale): a word >= threshold keeps. The scale belongs to the rate that the threshold really has."""
    if not 0 <= p < 1:
        raise ValueError(f"p: expected a probability in [0, 1), got {p!r}")
    threshold = min(round(p * 2**32), 2**32 - 1)
    return threshold, 1 / (1 - threshold / 2**32)


def kept_scale(p: float) -> float:
    """Return the factor of kept values in `dropout`: 1 / (1 - p), with the rounded p."""
    return rule(p)[1]


def keep_by(words: torch.Tensor, x: torch.Tensor, a: Arguments) -> torch.Tensor:
    """Dropout of x by the words of its elements; a: its threshold and scale."""
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
        **dict.fromkeys(("key", "threshold", "scale"), 0),
        "relu": False,
    },
    without=(("index", "rows", "num", "x"),),
)
def _dropout(a: Arguments) -> None:
    step = max(1, PIECE // (8 * max(1, a.x.shape[1])))
    for first in range(0, len(a.ids), step):
        piece = slice(first, first + step)
        rows = (a.x[piece] if a.index is None else a.x[a.index[piece]]).to(a.out.dtype)
        left = keep_by(random_words(a.key, a.ids[piece], a.x.shape[1]), rows.relu() if a.relu else rows, a)
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
    relu: bool = False,
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
        p: below 1, rounded to a multiple of 2**-32.
        index: int32 (n,) in [0, m), not checked.
        part: (n,) of out's dtype.
        relu: without part: whether ReLU of x comes first.

    Raises:
        ValueError: a wrong dtype, shape, layout, key or p.
    """
    _dropout(out, x, ids, index, part, key, *rule(p), relu)


@kernel(
    "hg_dropout_entries",
    {
        "out": "written type of data [entries]",
        "data": "number [entries]",
        "indptr": "int64 [num_rows + 1]",
        "ids": "int64 [num_rows]",
        "columns": "int32 [entries]",
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
        a.out[entries] = keep_by(words, a.data[entries], a)


def dropout_entries(*tensors: torch.Tensor, key: int, p: float) -> None:
    """Dropout of the stored entries of a sparse matrix, with the result of `dropout` for these entries when dense.

    tensors: out, data, indptr, ids, columns. out and data are (nnz,) of one dtype as above; out may be data itself.
    indptr is (n + 1,) int64 within [0, nnz], not checked, ids (n,) int64, columns (nnz,) int32, not negative. Entries
    outside [indptr[0], indptr[n]) are left alone. Raises ValueError for a wrong dtype, shape, layout, key or p.
    """
    threshold, scale = rule(p)
    _dropout_entries(*tensors, key=key, threshold=threshold, scale=scale)
