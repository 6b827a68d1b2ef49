"""Chains of square linear maps with ELU or ReLU before each, as between the first and the last map of a perceptron.

A block of rows stays in the cache from the first map to the last, in both directions. All maps are one call, with layer
norm behind them and rows that are added.
"""

from typing import Any

import torch

from .kernel import Arguments, kernel
from .projection import one_pass
from .rowwise import elu, elu_gradient, relu_gradient

_NO_MEMORY = "a chain of products: no memory to work in"
#: Numbers in a register's row of the compiled products (native/products.h).
_PANEL = 16
# The sizes of a table's shape differ by their text: hence `width + 0`.


@kernel(
    "hg_chain_forward",
    {
        "z": "float (rows, width)",
        "y": "written type of z (rows, width)",
        "biases": "type of z [width * maps]",
        "weights": "contiguous type of z (maps * width, width)",
        "kept": "optional written contiguous type of z (maps * rows, width)",
        "more": "optional type of z (rows, width)",
        "x": "optional type of z (rows, width)",
        "own": "optional contiguous type of z (width, width + 0)",
        "scale": "optional type of z [width]",
        "shift": "optional type of z [width]",
        "normal": "optional written contiguous type of z (rows, width)",
        "inverse": "optional written type of z [rows]",
        "epsilon": 0.0,
    },
    memory=_NO_MEMORY,
)
def _chain(a: Arguments) -> None:
    (rows, width), z = a.z.shape, a.z
    for added in (a.more, None if a.x is None else a.x @ a.own):
        z = z if added is None else z + added
    for k, weight in enumerate(a.weights.split(width)):
        h = torch.empty_like(a.y) if a.kept is None else a.kept[k * rows : (k + 1) * rows]
        if a.elu:
            elu(h, z)
        else:
            torch.clamp(z, min=0, out=h)
        z = torch.addmm(a.biases[k * width : (k + 1) * width], h, weight)
    if a.scale is not None:
        apart = z - z.mean(1, keepdim=True)
        inverse = (apart.square().mean(1, keepdim=True) + a.epsilon).rsqrt_()
        normal = apart * inverse
        z = normal * a.scale + a.shift
        if a.normal is not None:
            a.normal.copy_(normal)
            a.inverse.copy_(inverse[:, 0])
    torch.add(z, 0 if a.x is None else a.x, out=a.y)


@kernel(
    "hg_chain_backward",
    {
        "gy": "float (rows, width)",
        "gz": "written type of gy (rows, width)",
        "g_biases": "written type of gy [width * maps]",
        "g_weights": "written contiguous type of gy (maps * width, width)",
        "weights": "contiguous type of gy (maps * width, width)",
        "kept": "contiguous type of gy (maps * rows, width)",
        "x": "optional type of gy (rows, width)",
        "own": "optional contiguous type of gy (width, width + 0)",
        "gx": "optional written type of gy (rows, width)",
        "g_own": "optional written contiguous type of gy (width, width + 0)",
        "scale": "optional type of gy [width]",
        "normal": "optional contiguous type of gy (rows, width)",
        "inverse": "optional type of gy [rows]",
        "g_norm": "optional written contiguous type of gy (2, width)",
    },
    memory=_NO_MEMORY,
)
def _chain_backward(a: Arguments) -> None:
    (rows, width), g = a.gy.shape, a.gy
    if a.scale is not None:
        scaled = g * a.scale
        a.g_norm += torch.stack([(g * a.normal).sum(0), g.sum(0)])
        along = (scaled * a.normal).mean(1, keepdim=True)
        g = (scaled - scaled.mean(1, keepdim=True) - a.normal * along) * a.inverse[:, None]
    for k in reversed(range(len(a.weights) // max(1, width))):
        part, h = slice(k * width, (k + 1) * width), a.kept[k * rows : (k + 1) * rows]
        a.g_biases[part] += g.sum(0)
        a.g_weights[part].addmm_(h.t(), g)
        g = g @ a.weights[part].t()
        (elu_gradient if a.elu else relu_gradient)(g, g, h)
    a.gz.copy_(g)
    if a.x is not None:
        a.g_own.addmm_(a.x.t(), g)
        torch.addmm(a.gy, g, a.own.t(), out=a.gx)


def _compiled(x: torch.Tensor) -> bool:
    return one_pass(x.dtype) and x.shape[1] % _PANEL == 0


def chain(
    y: torch.Tensor,
    z: torch.Tensor,
    weights: torch.Tensor,
    biases: torch.Tensor,
    kept: torch.Tensor | None = None,
    *,
    elu: bool,
    **more: Any,
) -> None:
    """y = a(… a(a(z) W_1 + b_1) W_2 + b_2 …) W_K + b_K with a = ELU, or ReLU.

    All are of one dtype, float32 or float64. Autograd does not know this function.

    Args:
        y, z: (n, F), rows contiguous and any distance apart, without overlap.
        weights: (K F, F), K > 0 matrices.
        biases: (K F,).
        kept: (K n, F) for what each activation makes, or None.
        more: `more` (n, F) is added to z. With x (n, F) and own (F, F), x own is added to z, and x to y at last. With
            scale and shift (F,) and epsilon, layer norm follows the last product. If kept is given, normal (n, F) gets
            its normalised rows, and inverse (n,) 1 / their deviations.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    _chain(z, y, biases, weights, kept, elu=elu, compiled=_compiled(z), **more)


def chain_backward(
    gz: torch.Tensor,
    g_weights: torch.Tensor,
    g_biases: torch.Tensor,
    gy: torch.Tensor,
    weights: torch.Tensor,
    kept: torch.Tensor,
    *,
    elu: bool,
    **more: Any,
) -> None:
    """gz = the gradient of z from that of `chain`'s result, and the others += those of weights and biases.

    Arguments are as there. Where it had x, gx = and g_own += the gradients of x and own. Where it had scale, g_norm
    (2, F) += those of scale and shift; normal and inverse are read. No result depends on the number of threads.
    """
    _chain_backward(gy, gz, g_biases, g_weights, weights, kept, elu=elu, compiled=_compiled(gy), **more)
