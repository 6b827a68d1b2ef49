"""Chains of square linear maps with ELU or ReLU before each, as between the first and the last map of a perceptron.

A block of rows stays in the cache from the first map to the last, in both directions. All maps are one call, with layer
norm behind them and rows that are added.
"""

from typing import Any

import torch

from hpcgnn.kernels.kernel import Arguments, kernel
from hpcgnn.kernels.projection import one_pass
from hpcgnn.kernels.rowwise import elu, elu_gradient, relu_gradient

_NO_MEMORY = "a chain of products: no memory to work in"
#: Numbers in a register's row of the compiled products (native/products.h).
_PANEL = 16
# The sizes of a table's shape differ by their text: hence `width + 0`.


_READ: dict[str, str | float] = {
    "z": "float (nodes, width)",
    "z_index": "optional int32 [rows]",
    "more": "optional type of z (others, width + 0)",
    "more_index": "optional int32 [rows]",
    "x": "optional type of z (rows, width + 0)",
    "own": "optional contiguous type of z (width, width + 0)",
    "scale": "optional type of z [width]",
    "biases": "type of z [width * maps]",
    "weights": "contiguous type of z (maps * width, width)",
    "epsilon": 0.0,
}
_NOT_CHOSEN = ("z_index", "nodes", "rows", "z"), ("more_index", "others", "rows", "more")


def _chosen(x: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
    return x if index is None else x[index]


def _hidden(a: Arguments) -> tuple[list[torch.Tensor], torch.Tensor]:
    """(what each activation makes, the result of the last map)."""
    z, hidden, width = _chosen(a.z, a.z_index), [], a.z.shape[1]
    if a.more is not None:
        z = z + _chosen(a.more, a.more_index)
    if a.x is not None:
        z = z + a.x @ a.own
    for weight, bias in zip(a.weights.split(width), a.biases.split(width), strict=True):
        if a.elu:
            elu(h := torch.empty_like(z), z)
        else:
            h = z.clamp(min=0)
        hidden.append(h)
        z = torch.addmm(bias, h, weight)
    return hidden, z


def _normal(a: Arguments, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(normalised rows, 1 / their deviations)."""
    apart = z - z.mean(1, keepdim=True)
    inverse = (apart.square().mean(1, keepdim=True) + a.epsilon).rsqrt_()
    return apart * inverse, inverse


@kernel(
    "hg_chain_forward",
    {"y": "written type of z (rows, width + 0)", **_READ, "shift": "optional type of z [width]"},
    without=_NOT_CHOSEN,
    memory=_NO_MEMORY,
)
def _chain(a: Arguments) -> None:
    _, z = _hidden(a)
    if a.scale is not None:
        z = _normal(a, z)[0] * a.scale + a.shift
    torch.add(z, 0 if a.x is None else a.x, out=a.y)


@kernel(
    "hg_chain_backward",
    {
        "gz": "written type of z (rows, width + 0)",
        "g_biases": "written type of z [width * maps]",
        "g_weights": "written contiguous type of z (maps * width, width)",
        "gy": "type of z (targets, width + 0)",
        "gy_index": "optional int32 [rows]",
        **_READ,
        "gx": "optional written type of z (rows, width + 0)",
        "g_own": "optional written contiguous type of z (width, width + 0)",
        "g_norm": "optional written contiguous type of z (2, width)",
    },
    without=(*_NOT_CHOSEN, ("gy_index", "targets", "rows", "gy")),
    memory=_NO_MEMORY,
)
def _chain_backward(a: Arguments) -> None:
    width, g = a.z.shape[1], _chosen(a.gy, a.gy_index)
    (hidden, z), gy = _hidden(a), g
    if a.scale is not None:
        scaled, (normal, inverse) = g * a.scale, _normal(a, z)
        a.g_norm += torch.stack([(g * normal).sum(0), g.sum(0)])
        along = (scaled * normal).mean(1, keepdim=True)
        g = (scaled - scaled.mean(1, keepdim=True) - normal * along) * inverse
    for k, h in reversed([*enumerate(hidden)]):
        part = slice(k * width, (k + 1) * width)
        a.g_biases[part] += g.sum(0)
        a.g_weights[part].addmm_(h.t(), g)
        g = g @ a.weights[part].t()
        (elu_gradient if a.elu else relu_gradient)(g, g, h)
    a.gz.copy_(g)
    if a.x is not None:
        a.g_own.addmm_(a.x.t(), g)
        torch.addmm(gy, g, a.own.t(), out=a.gx)


def _compiled(x: torch.Tensor) -> bool:
    return one_pass(x.dtype) and x.shape[1] % _PANEL == 0


def chain(
    y: torch.Tensor, z: torch.Tensor, weights: torch.Tensor, biases: torch.Tensor, *, elu: bool, **more: Any
) -> None:
    """y = a(… a(a(z) W_1 + b_1) W_2 + b_2 …) W_K + b_K with a = ELU, or ReLU.

    All are of one dtype, float32 or float64. Autograd does not know this function.

    Args:
        y, z: (n, F), rows contiguous and any distance apart, without overlap.
        weights: (K F, F), K > 0 matrices.
        biases: (K F,).
        more: with z_index int32 (n,), z has any number of rows, and z[z_index] is taken. `more` (n, F), with more_index
            likewise, is added to it. With x (n, F) and own (F, F), x own is added to z, and x to y at last. With scale
            and shift (F,) and epsilon, layer norm follows the last product.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    _chain(y, z, weights=weights, biases=biases, elu=elu, compiled=_compiled(z), **more)


def chain_backward(
    gz: torch.Tensor,
    g_weights: torch.Tensor,
    g_biases: torch.Tensor,
    gy: torch.Tensor,
    z: torch.Tensor,
    weights: torch.Tensor,
    biases: torch.Tensor,
    *,
    elu: bool,
    **more: Any,
) -> None:
    """gz (n, F) = the gradient of the chosen rows of z, and of `more`, from that of `chain`'s result, gy[gy_index].

    The others += the gradients of weights and biases. Arguments are as there; what `chain` made on the way is made
    again. With x, gx = and g_own += the gradients of x and own. With scale, g_norm (2, F) += those of scale and shift.
    No result depends on the number of threads.
    """
    more |= {"z": z, "weights": weights, "biases": biases}
    _chain_backward(gz, g_biases, g_weights, gy, elu=elu, compiled=_compiled(z), **more)
