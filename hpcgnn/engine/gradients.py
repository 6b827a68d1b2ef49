"""All gradients in one flat buffer, so that a step needs one sum over ranks and one norm, however many parameters there
are.
"""

import math
import re

import torch

_LAYER = re.compile(r"(?:convs|norms)\.(\d+)\.")


class FlatGradients:
    """Makes the `.grad` of every parameter of a module a view into one vector `flat` (total,), of their common dtype.

    The parameters of each layer lie with those of its norm, from the first layer to the last; those outside of all
    layers lie with the first.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        layers: dict[int, list[torch.nn.Parameter]] = {0: []}
        for name, parameter in module.named_parameters():
            found = _LAYER.match(name)
            layers.setdefault(int(found[1]) if found else 0, []).append(parameter)
        parameters = [parameter for number in sorted(layers) for parameter in layers[number]]
        self.flat = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        start = 0
        for parameter in parameters:
            parameter.grad = self.flat[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()

    def zero(self) -> None:
        self.flat.zero_()

    def finite(self) -> bool:
        """Whether all of them are finite: the least and the largest are then. What is not a number counts as both."""
        return self.flat.numel() == 0 or all(math.isfinite(each) for each in torch.aminmax(self.flat))

    def clip(self, largest: float, square: float = 0.0) -> float:
        """Scale down to a global norm of at most `largest`, taken in float64; 0 leaves the gradients as they are.

        square: the squared norm of gradients that are kept elsewhere. Returns the factor, by which these are to be
        scaled as well.
        """
        if largest > 0:
            norm = float((torch.linalg.vector_norm(self.flat, dtype=torch.float64).square() + square).sqrt())
            if norm > largest:
                self.flat.mul_(largest / norm)
                return largest / norm
        return 1.0
