"""The learning rate as a function of the epoch, weight decay by layer, and the flat gradients."""

import math

import pytest
import torch

from hpcgnn.__main__ import registry_choices
from hpcgnn.config import make_config
from hpcgnn.engine.optim import build_optimizer, learning_rate
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options import ModelConfig

CHOICES = registry_choices()


def options(**values):
    return make_config({"graph": "-", "lr": 0.1, "epochs": 100, **values}, CHOICES).optim


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("constant", lambda t: 0.1),
        ("cosine", lambda t: 0.05 * (1 + math.cos(math.pi * t))),
        ("linear", lambda t: 0.1 * (1 - t)),
    ],
)
def test_rates(kind, expected):
    for epoch in (0, 10, 37, 99):
        assert learning_rate(epoch, options(lr_schedule=kind)) == pytest.approx(expected(epoch / 100))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("layers", ["first", "all"])
def test_steps_are_those_of_torch(name, layers):
    """Bit for bit, over a checkpoint in the middle, with the learning rate of each epoch and weight decay by layer."""
    chosen = options(optimizer=name, weight_decay=0.01, weight_decay_layers=layers)
    spec = ModelSpec(ModelConfig(hidden=5, norm="layer"), 4, 3)
    ours, theirs = (MODELS["gcn"].build(spec) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    first = {id(p) for p in theirs.convs[0].parameters()}
    decayed = {id(p) for p in theirs.parameters()} if layers == "all" else first
    groups = [{"params": [p], "weight_decay": 0.01 * (id(p) in decayed)} for p in theirs.parameters()]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    expected = kind(groups, **({"momentum": 0.9} if name == "sgd" else {}), fused=True)
    optimizer = build_optimizer(ours, chosen)
    for epoch in range(6):
        for mine, other in zip(ours.parameters(), theirs.parameters()):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for one in (optimizer, expected):
            for group in one.param_groups:
                group["lr"] = 0.1 / (epoch + 1)
            one.step()
        if epoch == 2:
            saved, optimizer = optimizer.state_dict(), build_optimizer(ours, chosen)
            optimizer.load_state_dict(saved)
    assert all(torch.equal(mine, other) for mine, other in zip(ours.parameters(), theirs.parameters()))


def test_a_state_that_does_not_fit_is_refused():
    optimizer = build_optimizer(MODELS["sgc"].build(ModelSpec(ModelConfig(model="sgc", layers=2), 4, 3)), options())
    with pytest.raises(ValueError, match=r"step of shape \(\) is of no parameter number 2"):
        optimizer.load_state_dict({2: {"step": torch.zeros(())}})
    with pytest.raises(ValueError, match=r"exp_avg of shape \(7,\) is of no parameter number 0"):
        optimizer.load_state_dict({0: {"exp_avg": torch.zeros(7)}})
