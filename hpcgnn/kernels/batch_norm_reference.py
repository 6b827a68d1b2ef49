"""Batch normalisation in torch's operations, some rows at a time."""

from torch import Tensor

# Rows of a piece: float64 copies of them stay small.
_PIECE = 4096


def column_sums(sums: Tensor, x: Tensor, mean: Tensor | None) -> None:
    for piece in x.split(_PIECE):
        sums += (piece if mean is None else (piece - mean).square()).double().sum(0)


def norm_gradient_sums(sums: Tensor, gy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> None:
    plain, products = sums.chunk(2)
    for g, piece in zip(gy.split(_PIECE), x.split(_PIECE), strict=True):
        plain += g.double().sum(0)
        products += ((piece - mean) * inverse * g).double().sum(0)


def norm_columns(y: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor) -> None:
    for out, piece in zip(y.split(_PIECE), x.split(_PIECE), strict=True):
        out.copy_((piece - mean) * inverse * weight + bias)


def norm_columns_gradient(
    gx: Tensor,
    gy: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    mean_gy: Tensor,
    mean_product: Tensor,
    factor: Tensor,
) -> None:
    for out, g, piece in zip(gx.split(_PIECE), gy.split(_PIECE), x.split(_PIECE), strict=True):
        out.copy_((g - mean_gy - (piece - mean) * inverse * mean_product) * factor)
