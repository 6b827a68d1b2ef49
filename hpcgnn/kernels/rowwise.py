"""Operations on rows between two layers and at the end, each in one pass over them.

These are ELU, its gradient and ReLU's, the gradient of a bias, batch normalisation, and cross-entropy.

torch's own ELU takes longer, for more digits than the result can hold. Layers of attention need an inner product per
head with each gradient, and the sums of its columns (see ops/attention_layer.py). Both come from the same pass.

Batch normalisation has sums of columns in float64, and one pass over the rows for each direction. Its vectors have the
accumulation dtype: float64 for float64, else float32. For cross-entropy and its gradient torch takes five passes, and
memory for them. No sum depends on the number of threads.
"""

from typing import Any

import torch

from .interface import SUMMED_ROWS, SUMMED_SHARES
from .kernel import Arguments, kernel
from .randomness import keep_by, random_words, rule

# Rows of a piece in torch: float64 copies of them stay small.
_PIECE = 4096
_VECTOR = "sum of x [width]"


def _partial(a: Arguments) -> torch.Tensor | None:
    """Memory for the column sums of gy, share by share."""
    return None if a.sums is None else a.sums.new_zeros(-(-len(a.gy) // SUMMED_ROWS), a.gy.shape[1])


@kernel("hg_elu", {"out": "written type of x (rows, width)", "x": "float (rows, width)"})
def elu(a: Arguments) -> None:
    """out = x where x > 0, else exp(x) - 1 (Clevert et al., ICLR'16, α = 1), to an absolute error of 1e-7 (float32).

    out may be x itself, but must not overlap it otherwise.
    """
    a.out.copy_(torch.where(a.x > 0, a.x, torch.exp(a.x.clamp_max(0)) - 1))


@kernel(
    "hg_elu_gradient",
    {
        "out": "written type of gy (rows, heads * head_width)",
        "gy": "float (rows, heads * head_width)",
        "y": "optional type of gy (rows, heads * head_width)",
        "x": "optional type of gy (rows, heads * head_width)",
        "dots": "optional written type of gy (rows, heads)",
        "bias": "optional type of gy [heads * head_width]",
        "sums": "optional written type of gy [heads * head_width]",
    },
    partial=_partial,
)
def _elu_gradient(a: Arguments) -> None:
    gradient = a.gy if a.y is None else a.gy * torch.where(a.y > 0, torch.ones_like(a.y), a.y + 1)
    if a.sums is not None:
        a.sums += gradient.sum(0)
    if a.scaled and a.dots is not None:
        gradient = (gradient.unflatten(1, (a.heads, -1)) * a.dots[..., None]).flatten(1)
    if a.dots is not None:
        product = gradient * (a.x if a.bias is None else a.x - a.bias)
        a.dots.copy_(product.unflatten(1, (a.heads, -1)).sum(2))
    a.out.copy_(gradient)


def heads_of(dots: torch.Tensor | None) -> int:
    """The number of columns of `dots`; 1 where there are none."""
    return 1 if dots is None else dots.shape[1]


def elu_gradient(
    out: torch.Tensor,
    gy: torch.Tensor,
    y: torch.Tensor | None,
    x: torch.Tensor | None = None,
    dots: torch.Tensor | None = None,
    **more: Any,
) -> None:
    """out = gy where y > 0, else gy (y + 1): the gradient of ELU's input x, from its result y. y of None: out = gy,
    without ELU.

    A layer of attention below needs two further results of its output's gradient, if they are not None. They are
    dots[i, h] = <out_i, x_i - bias> of head h, and sums (F,) += the sums of out's columns. Dots are summed in the order
    of `attend_backward`'s <gy, z>, to the same bits if x - bias is that z. No result depends on the number of threads.

    Args:
        out, gy, y, x: (n, F) of one dtype, float32 or float64, rows contiguous; out may be one of the others.
        dots: (n, H) of the same dtype, H a divisor of F, or None; it needs x.
        more: bias (F,), or None for zeros, only for dots; sums, or None; and `scaled`: after the sums, each head of out
            is multiplied by the previous value of its dots.

    Raises:
        ValueError: a wrong dtype, shape or layout.
    """
    _elu_gradient(out, gy, y, x, dots, heads=heads_of(dots), **more)


@kernel(
    "hg_relu_gradient",
    {
        "out": "written type of y (rows, width)",
        "gradient": "sum of y (rows, width)",
        "y": "number (rows, width)",
        "scale": 1.0,
    },
)
def relu_gradient(a: Arguments) -> None:
    """out = 0 where y <= 0, else scale * gradient: the gradient of the input of ReLU and of dropout by this scale.

    y is their result: it is 0 where the unit was off or dropped. out may be y itself, or gradient if that has its
    dtype.
    """
    a.out.copy_(torch.where(a.y <= 0, 0, a.gradient * a.scale))


@kernel(
    "hg_bias_gradient",
    {"sums": "written sum of gy [width]", "gy": "number (rows, width)"},
    partial=_partial,
)
def bias_gradient(a: Arguments) -> None:
    """sums (F,) += the sums of gy's columns (n, F). The result depends on no number of threads."""
    a.sums += a.gy.sum(0, dtype=a.sums.dtype)


def _shares(a: Arguments) -> torch.Tensor:
    """Memory for the sums of the shares that are made at a time."""
    shares = min(SUMMED_SHARES, -(-a.x.shape[0] // SUMMED_ROWS))
    return torch.empty(shares, 3 * a.x.shape[1], dtype=torch.float64)


@kernel(
    "hg_column_moments",
    {"sums": "written float64 [2 * width]", "x": "number (rows, width)"},
    partial=_shares,
)
def column_moments(a: Arguments) -> None:
    """sums (2 F,) = Σ_i x_i | Σ_i (x_i - mean)², with the mean of these rows. It reads x once."""
    plain, squares = a.sums.zero_().chunk(2)
    for piece in a.x.split(_PIECE):
        plain += piece.double().sum(0)
    for piece in a.x.split(_PIECE):
        squares += (piece.double() - plain / len(a.x)).square().sum(0)


@kernel(
    "hg_norm_gradient_sums",
    {
        "sums": "written float64 [2 * width]",
        "gy": "type of x (rows, width)",
        "x": "number (rows, width)",
        "mean": _VECTOR,
        "inverse": _VECTOR,
    },
    partial=_shares,
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
        "ids": "optional int64 [rows]",
        **dict.fromkeys(("key", "threshold", "scale"), 0),
        "relu": False,
    },
)
def _norm_columns(a: Arguments) -> None:
    for first in range(0, len(a.x), _PIECE):
        rows = slice(first, first + _PIECE)
        out = a.y[rows].copy_((a.x[rows] - a.mean) * a.inverse * a.weight + a.bias)
        if a.relu:
            out.relu_()
        if a.relu and a.ids is not None:
            out.copy_(keep_by(random_words(a.key, a.ids[rows], out.shape[1]), out, a))


def norm_columns(
    y: torch.Tensor,
    x: torch.Tensor,
    *vectors: torch.Tensor,
    ids: torch.Tensor | None = None,
    key: int = 0,
    p: float = 0.0,
    relu: bool = False,
) -> None:
    """y = (x - mean) inverse weight + bias; relu: ReLU comes behind it, and for p > 0 `dropout` of rows by ids and key.

    Args:
        y, x: (n, F) of one dtype, float32, float64 or bfloat16; y is not x.
        vectors: mean, inverse, weight, bias (F,), float64 for float64, else float32.
        ids, key, p: as of `dropout`.

    Raises:
        ValueError: a wrong dtype, shape, layout, key or p.
    """
    drop = (ids, key, *rule(p)) if p else ()
    _norm_columns(y, x, *vectors, *drop, relu=relu)


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


def _losses(a: Arguments) -> torch.Tensor:
    return torch.empty(-(-len(a.labels) // SUMMED_ROWS), dtype=torch.float64)


@kernel(
    "hg_cross_entropy",
    {
        "gradient": "optional written type of logits (num_rows, width)",
        "logits": "float as x (num_rows, width)",
        "rows": "optional int64 [num]",
        "labels": "int64 [num]",
        "total": "float64 [one]",
    },
    without=(("rows", "num", "num_rows", "labels"),),
    partial=_losses,
)
def _cross_entropy(a: Arguments) -> int:
    taken = torch.arange(len(a.labels)) if a.rows is None else a.rows
    bad = (taken < 0) | (taken >= len(a.logits)) | (a.labels < 0) | (a.labels >= a.logits.shape[1])
    if bad.any():
        return int(bad.nonzero()[0])
    log_p, label = torch.log_softmax(a.logits[taken], 1), a.labels.unsqueeze(1)
    if a.gradient is not None:
        p = log_p.exp()
        a.gradient[taken] = p.scatter_add_(1, label, p.new_full(label.shape, -1))
    a.total[0] = -log_p.gather(1, label).sum(dtype=torch.float64)
    return -1


def cross_entropy(
    gradient: torch.Tensor | None, logits: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor
) -> float:
    """Σ_i -log softmax(logits[rows[i]])[labels[i]], summed in float64. It does not depend on the number of threads.

    Args:
        gradient: None, or (n, C) of logits' dtype, maybe logits itself; these rows, and no others, get the gradient.
        logits: (n, C), float32 or float64, rows contiguous.
        rows: (m,) int64, all different, or None for all rows.
        labels: (m,) int64.

    Raises:
        ValueError: a wrong dtype, shape or layout, or a row or label out of range.
    """
    total = torch.zeros(1, dtype=torch.float64)
    wrong = _cross_entropy(gradient, logits, rows, labels, total)
    if wrong >= 0:
        row = wrong if rows is None else int(rows[wrong])
        places = f"row {row} in [0, {logits.shape[0]}) and label {int(labels[wrong])} in [0, {logits.shape[1]})"
        raise ValueError(f"labels[{wrong}]: expected {places}")
    return total.item()
