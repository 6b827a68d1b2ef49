"""Dropout whose mask is recomputed in the backward pass instead of stored."""

import torch

from hpcgnn import kernels


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ids, key, p):
        ctx.ids, ctx.key, ctx.p = ids, key, p
        return _apply(x, ids, key, p)

    @staticmethod
    def backward(ctx, gy):
        return _apply(gy, ctx.ids, ctx.key, ctx.p), None, None, None


def _apply(x, ids, key, p):
    x = x.contiguous()
    out = torch.empty_like(x)
    kernels.dropout(out, x, ids, key, p)
    return out


def dropout(x, ids, key, p):
    """x (n, F) with elements zeroed with probability p and the others scaled by 1/(1-p).

    ids: int64 (n,) original node ids; key: of the stream of draws (see draws.py). The identity for p = 0.
    """
    return x if p == 0 else _Dropout.apply(x, ids, key, p)


def dropped_rows(ids, key, p):
    """A function (x, rows, out) that writes to `out` what dropout leaves of the rows `rows` (a slice) of a matrix,
    given as x.
    """

    def drop(x, rows, out):
        kernels.dropout(out, x, ids[rows], key, p)

    return drop
