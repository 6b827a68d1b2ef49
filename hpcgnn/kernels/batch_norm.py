"""Batch normalisation of the rows of a rank: sums of columns in float64, and one pass over the rows for each direction.

Vectors have the accumulation dtype: float64 for float64, else float32. No sum depends on the number of threads.
"""

import torch

from .interface import SUMMED_ROWS, SUMMED_SHARES
from .kernel import Arguments, kernel

# Rows of a piece in torch: float64 copies of them stay small.
_PIECE = 4096
_VECTOR = "sum of x [width]"


def _partial(a: Arguments) -> torch.Tensor:
    """Zeros for the sums of the shares that are made at a time."""
    shares = min(SUMMED_SHARES, -(-len(a.x) // SUMMED_ROWS))
    return torch.zeros(shares, len(a.sums), dtype=torch.float64)


@kernel(
    "hg_column_sums",
    {"sums": "written float64 [width]", "x": "number (rows, width)", "mean": f"optional {_VECTOR}"},
    scratch={"partial": _partial},
)
def column_sums(a: Arguments) -> None:
    """sums (F,) += Σ_i x_i, or Σ_i (x_i - mean)²."""
    for piece in a.x.split(_PIECE):
        a.sums += (piece if a.mean is None else (piece - a.mean).square()).double().sum(0)


@kernel(
    "hg_norm_gradient_sums",
    {
        "sums": "written float64 [2 * width]",
        "gy": "type of x (rows, width)",
        "x": "number (rows, width)",
        "mean": _VECTOR,
        "inverse": _VECTOR,
    },
    scratch={"partial": _partial},
)
def norm_gradient_sums(a: Arguments) -> None:
    """sums (2 F,) += Σ_i gy_i | Σ_i gy_i (x_i - mean) inverse, by column; inverse is 1 / √(variance + ε)."""
    plain, products = a.sums.chunk(2)
    for g, piece in zip(a.gy.split(_PIECE), a.x.split(_PIECE), strict=True):
        plain += g.double().sum(0)
        products += ((piece - a.mean) * a.inverse * g).double().sum(0)


@kernel(
    "hg_norm_columns",
    {
        "y": "written type of x (rows, width)",
        "x": "number (rows, width)",
        **dict.fromkeys(("mean", "inverse", "weight", "bias"), _VECTOR),
    },
)
def norm_columns(a: Arguments) -> None:
    """y = (x - mean) inverse weight + bias; y is not x."""
    for out, piece in zip(a.y.split(_PIECE), a.x.split(_PIECE), strict=True):
        out.copy_((piece - a.mean) * a.inverse * a.weight + a.bias)


@kernel(
    "hg_norm_columns_gradient",
    {
        "gx": "written type of x (rows, width)",
        "gy": "type of x (rows, width)",
        "x": "number (rows, width)",
        **dict.fromkeys(("mean", "inverse", "mean_gy", "mean_product", "factor"), _VECTOR),
    },
)
def norm_columns_gradient(a: Arguments) -> None:
    """gx = (gy - mean_gy - (x - mean) inverse mean_product) factor; gx is none of the others."""
    for out, g, piece in zip(a.gx.split(_PIECE), a.gy.split(_PIECE), a.x.split(_PIECE), strict=True):
        out.copy_((g - a.mean_gy - (piece - a.mean) * a.inverse * a.mean_product) * a.factor)
