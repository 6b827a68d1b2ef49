"""Counter-based random numbers in plain torch (see randomness.py), for `reference.py`."""

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def philox(counters: Tensor, key: int) -> Tensor:
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


def random_words(key: int, ids: Tensor, columns: int) -> Tensor:
    num_groups = (columns + 3) // 4
    counters = torch.zeros(ids.numel(), num_groups, 4, dtype=torch.int64)
    counters[..., 0] = torch.arange(num_groups)
    counters[..., 1] = (ids & _MASK)[:, None]
    counters[..., 2] = ((ids >> 32) & _MASK)[:, None]
    return philox(counters, key).reshape(ids.numel(), 4 * num_groups)[:, :columns].contiguous()
