"""The optimizers, and the learning rate as a pure function of the epoch (so that resuming needs no scheduler state).

The arithmetic is torch's, by its functions `adam`, `adamw` and `sgd`. Its optimizer classes load torch's compiler,
which nothing here uses, when they are made: 70 MiB and 2 to 3 seconds of processor time on every rank.

Gradients lie in one vector, so that one message sums them.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from hpcgnn.options import OptimConfig

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


Tensors = list[torch.Tensor]
# {name: tensor}, the optimizer's state of one parameter.
State = dict[str, torch.Tensor]
# Of torch's functions: kernels that move all parameters of a call at once.
_FUSED: dict[str, Any] = {"maximize": False, "fused": True}


class Optimizer:
    """Takes one step at a time over groups of parameters. Subclasses define a parameter's state, and its update.

    Attributes:
        param_groups: list of {'params', 'weight_decay', 'lr'}.
        state: {parameter: {name: tensor}}, empty before the first step.
        state_names: possible names, in this order.
    """

    state_names: tuple[str, ...] = ()

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        self.param_groups = [{**group, "lr": lr} for group in groups]
        self.state: dict[torch.Tensor, State] = {}

    def set_learning_rate(self, rate: float) -> None:
        """For all groups, from the next step on."""
        for group in self.param_groups:
            group["lr"] = rate

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters along their gradients, in place. Groups of the same rates take one call."""
        alike: dict[tuple[float, float], Tensors] = {}
        for group in self.param_groups:
            alike.setdefault((group["lr"], group["weight_decay"]), []).extend(group["params"])
        for (lr, weight_decay), parameters in alike.items():
            for parameter in parameters:
                if parameter not in self.state:
                    self.state[parameter] = self.begin(parameter)
            states = [self.state[parameter] for parameter in parameters]
            gradients = [cast(torch.Tensor, p.grad) for p in parameters]
            self.move(parameters, gradients, states, lr=lr, weight_decay=weight_decay)

    def begin(self, parameter: torch.Tensor) -> State:
        """The state of a parameter before its first step: {name: tensor}."""
        return {}

    def move(self, parameters: Tensors, gradients: Tensors, states: list[State], **rates: Any) -> None:
        """Update parameters and states in place. rates: lr, weight_decay."""
        raise NotImplementedError

    def state_dict(self) -> dict[int, State]:
        """Return {number of the parameter, in the order of the groups: {name: tensor}}; parameters without state are
        left out.
        """
        return {i: self.state[p] for i, p in enumerate(self._parameters()) if self.state.get(p)}

    def load_state_dict(self, saved: Mapping[int, State]) -> None:
        """Load the result of `state_dict`. Raises ValueError if it does not fit."""
        parameters = self._parameters()
        for index, state in saved.items():
            for name, tensor in state.items():
                if index >= len(parameters) or (name != "step" and tensor.shape != parameters[index].shape):
                    raise ValueError(f"{name} of shape {tuple(tensor.shape)} is of no parameter number {index}")
        self.state = {parameters[index]: dict(state) for index, state in saved.items()}

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]


class Adam(Optimizer):
    """Kingma and Ba, ICLR'15."""

    state_names = ("step", "exp_avg", "exp_avg_sq")
    rule: Callable[..., None] = staticmethod(adam)

    def begin(self, parameter: torch.Tensor) -> State:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        return {"step": torch.zeros(()), **moments}

    def move(self, parameters: Tensors, gradients: Tensors, states: list[State], **rates: Any) -> None:
        means, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        moments: dict[str, Any] = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
        self.rule(parameters, gradients, means, squares, [], steps, **rates, **moments, **_FUSED)


class AdamW(Adam):
    """Adam with decoupled weight decay: Loshchilov and Hutter, ICLR'19."""

    rule = staticmethod(adamw)


class Sgd(Optimizer):
    """Gradient descent with momentum 0.9."""

    state_names = ("momentum_buffer",)

    def move(self, parameters: Tensors, gradients: Tensors, states: list[State], **rates: Any) -> None:
        velocities = [state.get("momentum_buffer") for state in states]
        momentum: dict[str, Any] = {"momentum": 0.9, "dampening": 0.0, "nesterov": False}
        sgd(parameters, gradients, velocities, **rates, **momentum, **_FUSED)
        for state, velocity in zip(states, velocities, strict=True):
            if velocity is not None:
                state["momentum_buffer"] = velocity


def build_optimizer(model: Any, options: OptimConfig) -> Optimizer:
    """Return Adam, AdamW or SGD, with weight decay on all parameters or on the first convolution's. model: a module
    with its convolutions in `convs`.
    """
    first = list(model.convs[0].parameters())
    in_first = {id(p) for p in first}
    rest = [p for p in model.parameters() if id(p) not in in_first]
    decay_rest = options.weight_decay if options.weight_decay_layers == "all" else 0.0
    groups = [{"params": first, "weight_decay": options.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": decay_rest})
    return make_optimizer(groups, options)


def make_optimizer(groups: list[dict[str, Any]], options: OptimConfig) -> Optimizer:
    """The optimizer of --optimizer over groups {'params', 'weight_decay'}."""
    return {"adam": Adam, "adamw": AdamW, "sgd": Sgd}[options.optimizer](groups, options.lr)


def learning_rate(epoch: int, options: OptimConfig) -> float:
    """The learning rate of an epoch (from 0)."""
    progress = epoch / options.epochs
    match options.lr_schedule:
        case "cosine":
            return options.lr * (0.5 * (1 + math.cos(math.pi * progress)))
        case "linear":
            return options.lr * (1.0 - progress)
    return options.lr
