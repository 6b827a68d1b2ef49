"""Layers that write gradients over activations, and have products of their own.

Their results equal the same layers' one operation at a time.
"""

import pytest
import torch

from hpcgnn.nn.gat import GATConv
from hpcgnn.ops.additive_attention import Attending
from hpcgnn.ops.handover import Handover

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
