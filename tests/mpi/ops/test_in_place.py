"""Layers that write gradients over activations, and have products of their own.

Their results equal the same layers' one operation at a time.
"""

import pytest
import torch

from hpcgnn.memory.arena import Arena
from hpcgnn.nn.gat import GATConv
from hpcgnn.ops.additive_attention import Attending
from hpcgnn.ops.handover import Handover
from hpcgnn.ops.layer_input import combine

from ..training import build_trainer, configure

CASES = {
    "plain": {},
    "dropout": {"dropout": 0.4, "attention_dropout": 0.3},
    "layer norm": {"norm": "layer", "dropout": 0.4},
    "residual": {"residual": True, "layers": 4},
    "one head at the end": {"out_heads": 1, "dropout": 0.4},
    "narrow rows": {"halo_dtype": "bf16"},
}


def one_by_one(self, graph, x):
    """GATConv.forward by torch's operations and the attention operator alone."""
    if isinstance(x, Handover):
        x = graph.dropout(torch.nn.functional.elu(x.rows), x.activation.p, self.layer)
    per_head = self.linear.weight.view(self.d_in, self.shape.heads, self.shape.width)
    halves = [(per_head * vector).sum(-1) for vector in (self.att_src, self.att_dst)]
    projected, how = x @ torch.cat([self.linear.weight, *halves], 1), Attending(self.shape, p=self.p)
    return graph.attention_layer(projected, None, how, self.layer) + self.bias


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("graph", ["undirected", "directed multi-label"])
def test_gat(comm, paths, graph, name, monkeypatch):
    options = {"model": "gat", "layers": 3, "hidden": 5, "heads": 2, "out_heads": 2, "precision": "fp64", **CASES[name]}

    def gradients():
        trainer = build_trainer(comm, configure(paths[graph], **options), "metis")
        with torch.no_grad():
            for index, parameter in enumerate(trainer.model.parameters()):  # biases and attention vectors too
                draws = torch.Generator().manual_seed(index)
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=draws, dtype=parameter.dtype))
        trainer.random.epoch = 3
        loss = trainer.objective.local_loss(trainer.model(trainer.graph))
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in trainer.model.parameters())]

    found = gradients()
    monkeypatch.setattr(GATConv, "forward", one_by_one)
    for mine, expected in zip(found, gradients(), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_one_gradient_for_all_rows(comm, paths, model):
    """Autograd's gradient of a sum is an expanded tensor, whose rows are one."""
    options = {"model": model, "layers": 2, "hidden": 6, "precision": "fp64", "prune": "none"}
    found = []
    for weights in (1.0, torch.ones(1, 1, dtype=torch.float64)):  # a product's gradient is a tensor of its own
        trainer = build_trainer(comm, configure(paths["undirected"], **options), "metis")
        y = trainer.model(trainer.graph)
        (y.sum(0).sum() if isinstance(weights, float) else (y * weights).sum()).backward()
        found.append([p.grad for p in trainer.model.parameters()])
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transposed_weights_and_other_types(dtype):
    """A layer of somebody's own may keep its weights the other way round, and its input in another type."""
    weight, bias = torch.randn(5, 7, requires_grad=True), torch.zeros(5, requires_grad=True)
    x = torch.randn(30, 7, dtype=dtype)
    combine([(x, weight.t(), None)], bias, Arena()).square().sum().backward()
    found, weight.grad = weight.grad, None
    (x.float() @ weight.t()).square().sum().backward()
    torch.testing.assert_close(found, weight.grad)


def test_frozen_biases_change_no_other_gradient(comm, paths):
    """The layer above makes the gradient of a bias, wanted or not."""
    found = []
    for frozen in (False, True):
        options = {"model": "gat", "layers": 3, "hidden": 20, "dropout": 0.3, "precision": "fp64"}
        trainer = build_trainer(comm, configure(paths["undirected"], **options), "metis")
        for name, parameter in trainer.model.named_parameters():
            parameter.requires_grad_(not (frozen and name.endswith("bias")))
        trainer.objective.local_loss(trainer.model(trainer.graph)).backward()
        found.append({name: p.grad for name, p in trainer.model.named_parameters()})
    for name, gradient in found[1].items():
        wanted = torch.zeros_like(gradient) if name.endswith("bias") else found[0][name]
        assert gradient.any() != name.endswith("bias"), name
        torch.testing.assert_close(gradient, wanted)
