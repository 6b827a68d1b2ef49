"""Random numbers that are a function of their purpose and place, not of earlier draws.

A word is determined by a stream's key and the place (row id, column) it belongs to. Hence every rank can recompute the
words of any row, in any order. Dropout masks need not be stored or sent, and a training curve does not depend on the
number of ranks. The generator is Philox4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
numbers: as easy as 1, 2, 3", SC'11), keyed by 64 bits that `stream_key` mixes from seed, epoch, layer, purpose.
"""

import torch

from .kernel import Arguments, kernel

_MASK = (1 << 64) - 1
_LOW = 0xFFFFFFFF


def _mix(z: int) -> int:
    """SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): a bijection of 64 bits in which every bit counts."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def stream_key(seed: int, *parts: int) -> int:
    """A 64-bit key from integers, e.g. stream_key(seed, epoch, layer, purpose).

    Order and number of the parts matter; negative numbers count modulo 2**64. Raises TypeError for anything but
    integers.
    """
    key = 0
    for part in (seed, *parts):
        if not isinstance(part, int):
            raise TypeError(f"stream_key: expected integers, got {part!r}")
        key = _mix((key + 0x9E3779B97F4A7C15 + _mix(part & _MASK)) & _MASK)
    return key


def checked_key(key: int) -> int:
    """`key`, if it has 64 bits; raises ValueError."""
    if not isinstance(key, int) or not 0 <= key <= _MASK:
        raise ValueError(f"key: expected an integer in [0, 2**64), as stream_key gives, got {key!r}")
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


@kernel("hg_random_words", {"words": "contiguous int64 (num, columns)", "ids": "int64 [num]", "key": ...})
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
    if columns < 0:
        raise ValueError(f"columns: expected 0 or more, got {columns}")
    words = torch.empty(len(ids), columns, dtype=torch.int64)
    _random_words(words, ids, checked_key(key))
    return words
