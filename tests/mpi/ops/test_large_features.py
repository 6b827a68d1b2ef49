"""Gradients of attention where features are large and the softmax saturates: float32 against formulas in float64.

The gradient of a logit is then a difference of inner products as large as the features, which is almost always 0. A
rounding error in it would be multiplied by the features once more, and soon exceed the gradient of the weights.
"""

import math

import pytest
import torch
from torch.nn.functional import elu

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import TrainingError

from ..nn import formulas
from ..training import build_trainer, configure, make_graphs

pytestmark = pytest.mark.ranks(2)

MODELS = {
    "gat": {},
    "gat, one head at the end": {"out_heads": 1},
    "gat, one layer of one head": {"layers": 1, "out_heads": 1},
    "gatv2": {},
    "transformer": {},
}


@pytest.fixture(scope="module")
def graph(comm, session_path):
    """Of more nodes than elsewhere, whose rounding errors the bounds below are made for."""
    return make_graphs(comm, session_path, nodes=900)["undirected"]


def trainer_of(comm, path, name, scale, map_name="random-clusters"):
    """A trainer in the middle of its work: biases are not 0, features `scale` times as large."""
    usual = {"layers": 2, "hidden": 8, "heads": 4, "out_heads": 3, "dropout": 0.0, **MODELS[name]}
    trainer = build_trainer(comm, configure(path, model=name.split(",")[0], **usual), map_name)
    with torch.no_grad():
        for index, (key, parameter) in enumerate(trainer.model.named_parameters()):
            if "bias" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
        trainer.graph.features.mul_(scale)
    return trainer


def gradients(comm, trainer):
    """(loss, {name: gradient}) of all ranks, in float64."""
    loss = trainer.objective.local_loss(trainer.model(trainer.graph))
    loss.backward()
    found = {key: comm.total(p.grad.double()) for key, p in trainer.model.named_parameters()}
    return float(comm.total(loss.detach().double().view(1))), found


def by_formulas(trainer, dtype):
    """(loss, {name: gradient}) over a list of edges, with the softmax by its definition. trainer: of one rank."""
    block, spec = trainer.graph._local.inward.own, trainer.model.spec.options
    src, dst = block.indices.long(), torch.repeat_interleave(torch.arange(len(trainer.graph.ids)), block.indptr.diff())
    named = {k: v.detach().to(dtype).requires_grad_() for k, v in trainer.model.named_parameters()}
    x, last = trainer.graph.features.to(dtype), spec.layers - 1
    for layer in range(spec.layers):
        prefix, x = f"convs.{layer}.", elu(x) if layer else x
        p = {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}
        heads = spec.out_heads if layer == last else spec.heads
        given = (heads,) if spec.model == "transformer" else ()
        x = getattr(formulas, spec.model)(p, x, src, dst, *given, average=layer == last and heads > 1)
    loss = trainer.objective.local_loss(x)
    loss.backward()
    return float(loss.detach()), {k: v.grad.double() for k, v in named.items()}


def errors(found, wanted):
    """{name: relative error}, without parameters of logits alone, whose gradient tends to 0."""
    names = [k for k in wanted if k.rsplit(".", 1)[1] in ("weight", "bias") and "query" not in k and "target" not in k]
    return {k: float((found[k] - wanted[k]).norm() / wanted[k].norm()) for k in names}


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e4, 1e6, 1e15])
@pytest.mark.parametrize("name", MODELS)
def test_gradients(comm, graph, name, scale):
    if name == "transformer":
        scale = math.sqrt(scale)  # its logits are of the second order
    alone = trainer_of(SoloCommunicator(), graph, name, scale, None)
    (loss, wanted), (_, theirs) = by_formulas(alone, torch.float64), by_formulas(alone, torch.float32)
    found_loss, found = gradients(comm, trainer_of(comm, graph, name, scale))
    assert math.isclose(loss, found_loss, rel_tol=1e-5)
    allowed = errors(theirs, wanted)
    for key, error in errors(found, wanted).items():
        # Of rows near saturation float32's logits themselves have too few digits. And averaged heads keep the
        # log-sum-exp alone: of edges of equal logits, the shares have the digits that are left behind those of the
        # logits.
        equal = 1e-4 if name == "gat" and scale == 1e6 else 0.02 if name == "gat" and scale == 1e15 else 0
        assert error < 3e-6 + 20 * allowed[key] + equal, key


def test_a_gradient_that_is_not_finite_is_not_called_a_loss(comm, graph):
    trainer = trainer_of(comm, graph, "gatv2", 1.0)
    trainer.model.convs[1].bias.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(TrainingError) as caught:
        trainer.step(0)
    text = str(caught.value)
    assert "the gradient is not finite in epoch 1" in text and "expected a finite gradient" in text
