"""Where numbers stopped being finite: the first layer in the order of computing, the lowest rank that saw it first."""

import pytest
import torch

from hpcgnn.comm import SoloCommunicator
from hpcgnn.engine.diagnosis import first_not_finite


class Spoilt(torch.nn.Linear):
    """One number of its output is not finite."""

    def forward(self, x):
        y = super().forward(x)
        y[0, 0] = self.value
        return y


class TwoRanks(SoloCommunicator):
    """Another rank has seen something, too."""

    def __init__(self, other):
        super().__init__()
        self.size, self._other = 2, other

    def allgather_object(self, value):
        return [value, self._other]


def chain(*spoilt, value=torch.inf):
    """Three layers, some of them spoilt."""
    layers = [(Spoilt if number in spoilt else torch.nn.Linear)(3, 3) for number in range(3)]
    for layer in layers:
        layer.value = value
    return torch.nn.Sequential(*layers)


def again(model):
    """The forward pass of a model and its loss."""
    return lambda: model(torch.ones(2, 3)).sum()


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_the_first_layer_is_named_and_nothing_stays_behind(value):
    model = chain(1, 2, value=value)
    assert first_not_finite(model, again(model), SoloCommunicator()) == (
        "the first output that is not finite is that of layer 1 (Spoilt), on rank 0"
    )
    assert not any(layer._forward_hooks for layer in model)


def test_finite_outputs_and_parameters_that_are_not():
    model = chain()
    infinite = first_not_finite(model, lambda: again(model)() * torch.inf, SoloCommunicator())
    assert infinite == "every layer's output is finite, the loss of them is not"
    assert first_not_finite(model, again(model), SoloCommunicator()) == "a second pass was finite"
    with torch.no_grad():
        model[1].bias[2] = torch.nan
    assert first_not_finite(model, again(model), SoloCommunicator()) == "parameter 1.bias is not finite already"


@pytest.mark.parametrize(
    "other, words",
    [
        ((2, "1 (Spoilt)"), "layer 1 (Spoilt), on rank 0"),
        ((1, "0 (Spoilt)"), "layer 0 (Spoilt), on rank 1"),
        (None, "on rank 0"),
    ],
)
def test_the_earliest_of_all_ranks(other, words):
    """Layer 1 is the second to compute here."""
    model = chain(1)
    assert first_not_finite(model, again(model), TwoRanks(other)).endswith(words)
