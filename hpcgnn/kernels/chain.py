"""Chains of square linear maps with ELU or ReLU before each, as between the first and the last map of a perceptron.

A block of rows stays in the cache from the first map to the last, in both directions, and is one call for all maps.
"""

import torch

from .kernel import Arguments, kernel
from .projection import one_pass
from .rowwise import elu, elu_gradient, relu_gradient

_NO_MEMORY = "a chain of products: no memory to work in"
#: Numbers in a register's row of the compiled products (native/products.h).
_PANEL = 16


@kernel(
    "hg_chain_forward",
    {
        "z": "float (rows, width)",
        "y": "written type of z (rows, width)",
        "biases": "type of z [width * maps]",
        "weights": "contiguous type of z (maps * width, width)",
        "kept": "optional written contiguous type of z (maps * rows, width)",
    },
    memory=_NO_MEMORY,
)
def _chain(a: Arguments) -> None:
    rows, width = a.z.shape
    for k, weight in enumerate(a.weights.split(width)):
        h = torch.empty_like(a.y) if a.kept is None else a.kept[k * rows : (k + 1) * rows]
        if a.elu:
            elu(h, a.y if k else a.z)
        else:
            torch.clamp(a.y if k else a.z, min=0, out=h)
        torch.addmm(a.biases[k * width : (k + 1) * width], h, weight, out=a.y)


@kernel(
    "hg_chain_backward",
    {
        "gy": "float (rows, width)",
        "gz": "written type of gy (rows, width)",
        "g_biases": "written type of gy [width * maps]",
        "g_weights": "written contiguous type of gy (maps * width, width)",
        "weights": "contiguous type of gy (maps * width, width)",
        "kept": "contiguous type of gy (maps * rows, width)",
    },
    memory=_NO_MEMORY,
)
def _chain_backward(a: Arguments) -> None:
    (rows, width), g = a.gy.shape, a.gy
    for k in reversed(range(len(a.weights) // max(1, width))):
        part, h = slice(k * width, (k + 1) * width), a.kept[k * rows : (k + 1) * rows]
        a.g_biases[part] += g.sum(0)
        a.g_weights[part].addmm_(h.t(), g)
        g = g @ a.weights[part].t()
        (elu_gradient if a.elu else relu_gradient)(g, g, h)
    a.gz.copy_(g)


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
) -> None:
    """y = a(… a(a(z) W_1 + b_1) W_2 + b_2 …) W_K + b_K with a = ELU, or ReLU.

    All are of one dtype, float32 or float64. Autograd does not know this function.

    Args:
        y, z: (n, F), rows contiguous and any distance apart, without overlap.
        weights: (K F, F), K > 0 matrices.
        biases: (K F,).
        kept: (K n, F) for what each activation makes, or None.

    Raises:
        ValueError, MemoryError: a wrong dtype, shape or layout; no memory.
    """
    _chain(z, y, biases, weights, kept, elu=elu, compiled=_compiled(z))


def chain_backward(
    gz: torch.Tensor,
    g_weights: torch.Tensor,
    g_biases: torch.Tensor,
    gy: torch.Tensor,
    weights: torch.Tensor,
    kept: torch.Tensor,
    *,
    elu: bool,
) -> None:
    """gz = the gradient of z from that of `chain`'s result, and the others += those of weights and biases.

    Arguments are as there. No result depends on the number of threads.
    """
    _chain_backward(gy, gz, g_biases, g_weights, weights, kept, elu=elu, compiled=_compiled(gy))
