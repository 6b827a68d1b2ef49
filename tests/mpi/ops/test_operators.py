"""Descriptions of operators, and what the halo policies make of them."""

import graphs
import numpy as np
import pytest
import torch

from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import Wire
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operators import Attention, InDegree, Largest, Linear, Messages, Operator, Relational
from hpcgnn.ops.site import Facts
from hpcgnn.schedules.bns import SampledHalo, build_bns
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import whole
from ..small import stored
from ..training import CHOICES

KINDS = {
    "linear": Linear("sym", torch.float64),
    "attention": Attention(AttentionShape(2, 3)),
    "in-degree": InDegree(),
    "largest": Largest(),
    "messages": Messages(),
    "relational": Relational(2, torch.float64),
}


@pytest.fixture(scope="module")
def local(comm, session_path):
    _, where, file = stored(comm, session_path, "random directed weighted")
    return graphs.load(file, where.maps["dealt"], comm, cap=4, keep_edges=True)


def sampled_halo(comm, local):
    """A policy whose ranks use some rows of others."""
    policy = SampledHalo(local, comm, HaloBuffers(1 << 20), Wire(), Facts(local, comm), Randomness(1), 0.5)
    policy.begin_epoch(0)
    return policy


def test_every_operator_is_tested_here():
    made = {type(one) for one in KINDS.values()}
    assert made == {each for each in Operator.__subclasses__() if each.__module__.startswith("hpcgnn.ops.")}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_schedule_cannot_give_is_refused(comm, local, kind):
    """With the schedule, the models that asked for it, and what to use; on every rank, and before anything is sent."""
    policy, one = sampled_halo(comm, local), KINDS[kind]
    if one.pushes:
        assert policy.operator(one) is not None
        return
    assert one.models
    comm.ledger.take()
    with pytest.raises(ConfigError) as caught:
        policy.operator(one)
    text = str(caught.value)
    assert "--schedule bns " in text and one.models in text and "expected gcn" in text
    assert not comm.ledger.take()


def test_int8_rows_are_refused_for_the_largest(comm, local):
    wire = Wire("int8", local.original_id, lambda number: number)
    with pytest.raises(ConfigError, match="int8 .* expected fp32 or bf16"):
        FullHalo(local, comm, HaloBuffers(1 << 20), wire).operator(Largest())


def test_without_gradients_a_schedule_is_exact_and_refuses_nothing(comm, local):
    config = make_config({"graph": "g.h5", "schedule": "bns", "boundary_rate": 0.3}, CHOICES)
    policy = build_bns(local, comm, HaloBuffers(1 << 20), config, Randomness(2)).halo
    exact = FullHalo(local, comm, HaloBuffers(1 << 20))
    policy.begin_epoch(0)
    with pytest.raises(ConfigError):
        policy.operator(Largest())
    table = np.random.default_rng(3).standard_normal((local.num_nodes, 4))
    x = torch.from_numpy(table[local.original_id.numpy()])
    with torch.no_grad():
        for one in (Linear("mean", torch.float64), Largest()):
            found, expected = (whole(comm, local, each.operator(one)(x)) for each in (policy, exact))
            np.testing.assert_array_equal(found, expected)
