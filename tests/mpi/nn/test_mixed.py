"""--precision mixed: hidden states in bfloat16, halved on the way as well; products and aggregates are of float32."""

import pytest
import torch

from ..training import CLASSES, FEATURES, build_trainer, configure, few_train, traffic_of

pytestmark = pytest.mark.ranks(2)

MODELS = {
    "sage, norm and residual": {"model": "sage", "norm": "layer", "residual": True},
    "gcn, features every step": {"model": "gcn", "input_dropout": "raw", "hidden": 32},
    "sage, widening at the end": {"model": "sage", "hidden": 4},
}


def trained(comm, path, epochs=4, **options):
    """(losses, parameters, trainer)."""
    trainer = build_trainer(comm, configure(path, lr=0.003, **options), "metis", rows=7)
    seen = set()
    for conv in trainer.model.convs[1:]:
        conv.register_forward_pre_hook(lambda conv, given: seen.add(getattr(given[1], "rows", given[1]).dtype))
    losses = torch.tensor([trainer.step(epoch) for epoch in range(epochs)])
    assert seen == {torch.bfloat16 if options.get("precision") == "mixed" else torch.float32}, "of hidden states"
    return losses, torch.cat([p.detach().flatten() for p in trainer.model.parameters()]), trainer


CASES = [("undirected", kind) for kind in MODELS] + [("directed multi-label", "sage, norm and residual")]


@pytest.mark.parametrize("name, kind", CASES)
def test_learns_what_fp32_learns(comm, session_path, name, kind):
    path = few_train(comm, session_path)[name]
    exact, parameters, _ = trained(comm, path, **MODELS[kind])
    losses, narrow, _ = trained(comm, path, precision="mixed", prune="auto", **MODELS[kind])
    torch.testing.assert_close(losses, exact, rtol=0.02, atol=0)
    assert narrow.dtype == torch.float32
    assert float((narrow - parameters).norm() / parameters.norm()) < 0.02
    assert not torch.equal(losses, exact), "something is rounded"


def test_hidden_states_and_halos_take_half_the_bytes(comm, session_path):
    path, kept = few_train(comm, session_path)["undirected"], []
    for precision, size in (("fp32", 4), ("mixed", 2)):
        trainer = trained(comm, path, epochs=1, model="gcn", keep_input="always", precision=precision)[2]
        step = traffic_of(trainer, 1)
        plan = trainer.schedule.halo.inward.plan
        for kind in ("halo_forward", "halo_backward") if plan.num_boundary else ():
            assert step[kind].bytes_sent == plan.num_boundary * size * (16 + CLASSES)
        kept.append(trainer.constants["input aggregate"])
    assert [constant.dtype for constant in kept] == [torch.float32, torch.bfloat16]
    assert kept[0].shape == kept[1].shape and kept[0].shape[1] == FEATURES
