"""Rows in 8, 4 or 2 bits for each number, rounded at random, for messages; and back.

8 bits have levels from -127 to 127; the row's factor is the step (float32), a 127th of its largest magnitude. 4 and 2
bits have levels from 0 on. The row's factors are its least number and the step (bfloat16), rounded so that the levels
reach its largest number. Rounding is unbiased (AdaQP, Wan et al., MLSys'23): the level is floor((x - least) / step +
u). u in [0, 1) are 24 bits of the random word of the row's id and the column (randomness.py). Column c of a row of B
bytes stands in byte c mod B, c div B levels from its lowest bits. So neighbouring columns stay neighbours.

A row with a number that is not finite has factors that are not finite, so that all its numbers are invalid.
"""

import torch

from . import checks
from .library import kernels
from .randomness import checked_key

#: Bits of a number -> (dtype of the packed numbers, dtype of a row's factors, number of factors).
BITS = {
    8: (torch.int8, torch.float32, 1),
    4: (torch.uint8, torch.bfloat16, 2),
    2: (torch.uint8, torch.bfloat16, 2),
}
_COMPUTED = (torch.float32, torch.float64)


def narrow(
    out: torch.Tensor,
    factors: torch.Tensor,
    x: torch.Tensor,
    ids: torch.Tensor,
    key: int,
    bits: int,
    index: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> None:
    """Write rows index[i] of x (i without one), times their scale, as rows i of out and their factors.

    out is (m, ⌈F·bits/8⌉) and factors (m, f), with dtypes and f of BITS. x is (n, F) float32 or float64. ids (m,) int64
    and key, from `stream_key`, determine the random words. index is (m,) int32 in [0, n), not checked; scale (n,) of
    x's dtype. Raises ValueError for a wrong dtype, shape, layout, key or number of bits.
    """
    rows = x.shape[0] if index is None else index.shape[0]
    _check(out, factors, x, rows, bits, "x")
    checks.vector("ids", ids, torch.int64, rows)
    checks.vector("index", index, torch.int32, None, optional=True)
    checks.vector("scale", scale, x.dtype, x.shape[0], optional=True)
    kernels().narrow(out, factors, x, ids, checked_key(key), bits, index, scale)
    checks.written(out)
    checks.written(factors)


def widen(out: torch.Tensor, narrow: torch.Tensor, factors: torch.Tensor, bits: int) -> None:
    """Write the rows (m, F) that `narrow` wrote as narrow and factors to out, float32 or float64. Raises ValueError as
    that does.
    """
    _check(narrow, factors, out, out.shape[0], bits, "out")
    kernels().widen(out, narrow, factors, bits)
    checks.written(out)


def _check(narrow: torch.Tensor, factors: torch.Tensor, rows: torch.Tensor, num: int, bits: int, name: str) -> None:
    if bits not in BITS:
        raise ValueError(f"bits: expected one of {', '.join(map(str, BITS))}, got {bits!r}")
    kind, of_factors, beside = BITS[bits]
    checks.matrix(name, rows, _COMPUTED)
    checks.matrix("narrow", narrow, (kind,), rows=num, columns=-(-rows.shape[1] * bits // 8))
    checks.matrix("factors", factors, (of_factors,), rows=num, columns=beside)
