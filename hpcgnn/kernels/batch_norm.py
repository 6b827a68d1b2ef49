"""Batch normalisation of the rows of a rank: sums of columns in float64, and one pass over the rows for each direction.

Vectors have the accumulation dtype: float64 for float64, else float32. No sum depends on the number of threads.
"""

import torch

from . import checks
from .library import kernels


def column_sums(sums: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None = None) -> None:
    """sums (F,) += Σ_i x_i, or Σ_i (x_i - mean)².

    Args:
        sums: float64.
        x: (n, F), float32, float64 or bfloat16, rows contiguous.
        mean: (F,), or None.

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    checks.matrix("x", x, checks.FLOATS)
    checks.vector("sums", sums, torch.float64, x.shape[1])
    _vectors(x, optional=("mean",), mean=mean)
    kernels().column_sums(sums, x, mean)
    checks.written(sums)


def norm_gradient_sums(
    sums: torch.Tensor, gy: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, inverse: torch.Tensor
) -> None:
    """sums (2 F,) += Σ_i gy_i | Σ_i gy_i (x_i - mean) inverse, by column.

    Args:
        sums: float64.
        gy, x: (n, F) of one dtype, as for `column_sums`.
        mean, inverse: (F,); inverse is 1 / √(variance + ε).

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    _rows(x, gy=gy)
    checks.vector("sums", sums, torch.float64, 2 * x.shape[1])
    _vectors(x, mean=mean, inverse=inverse)
    kernels().norm_gradient_sums(sums, gy, x, mean, inverse)
    checks.written(sums)


def norm_columns(
    y: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> None:
    """y = (x - mean) inverse weight + bias.

    Args:
        y, x: (n, F) of one dtype, as for `column_sums`; y is not x.
        mean, inverse, weight, bias: (F,).

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    _rows(x, y=y)
    _vectors(x, mean=mean, inverse=inverse, weight=weight, bias=bias)
    kernels().norm_columns(y, x, mean, inverse, weight, bias)
    checks.written(y)


def norm_columns_gradient(
    gx: torch.Tensor,
    gy: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    mean_gy: torch.Tensor,
    mean_product: torch.Tensor,
    factor: torch.Tensor,
) -> None:
    """gx = (gy - mean_gy - (x - mean) inverse mean_product) factor.

    Args:
        gx, gy, x: (n, F) of one dtype, as for `column_sums`; gx is none of the others.
        mean, inverse, mean_gy, mean_product, factor: (F,).

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    _rows(x, gx=gx, gy=gy)
    _vectors(x, mean=mean, inverse=inverse, mean_gy=mean_gy, mean_product=mean_product, factor=factor)
    kernels().norm_columns_gradient(gx, gy, x, mean, inverse, mean_gy, mean_product, factor)
    checks.written(gx)


def _rows(x: torch.Tensor, **others: torch.Tensor) -> None:
    checks.matrix("x", x, checks.FLOATS)
    for name, tensor in others.items():
        checks.matrix(name, tensor, (x.dtype,), *x.shape)


def _vectors(x: torch.Tensor, optional: tuple[str, ...] = (), **vectors: torch.Tensor | None) -> None:
    for name, vector in vectors.items():
        checks.vector(name, vector, checks.accumulation_dtype(x.dtype), x.shape[1], optional=name in optional)
