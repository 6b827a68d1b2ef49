"""Slow, obvious versions of the kernels in numpy and Python integers; nothing of the package is imported."""

import numpy as np
import scipy.sparse


def gather(y, x, indptr, indices, rows, weight, source_scale, row_scale, accumulate):
    """What y must be, in float64 (arrays are float64; indptr starts anywhere)."""
    num_stored = len(indptr) - 1
    used = indices[: indptr[-1]]
    values = np.ones(len(used)) if weight is None else weight[: indptr[-1]].copy()
    if source_scale is not None:
        values *= source_scale[used]
    values[: indptr[0]] = 0
    product = scipy.sparse.csr_matrix(
        (values[indptr[0] :], used[indptr[0] :], indptr - indptr[0]), shape=(num_stored, len(x))
    )
    sums = product @ x
    target = np.arange(num_stored) if rows is None else rows
    result = y.copy()
    if row_scale is not None:
        sums = sums * row_scale[target][:, None]
    result[target] = result[target] + sums if accumulate else sums
    return result


def philox(counter, key):
    """Philox4x32-10 of four words and two key words, in Python integers (Salmon et al., SC'11, figures 2 and 3)."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(right >> 32) ^ c[1] ^ k0, right % 2**32, (left >> 32) ^ c[3] ^ k1, left % 2**32]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def word(key, row, column):
    row %= 2**64
    return philox((column // 4, row % 2**32, row >> 32, 0), (key % 2**32, key >> 32))[column % 4]
