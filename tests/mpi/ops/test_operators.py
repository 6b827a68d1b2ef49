"""Descriptions of operators, and what the halo policies make of them."""

from dataclasses import replace

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
from hpcgnn.ops.operators import Attention, InDegree, Linear, Messages, Operator, Relational
from hpcgnn.ops.site import Facts
from hpcgnn.schedules.bns import SampledHalo, build_bns
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import whole
from ..small import stored
from ..training import CHOICES

#: Of each kind: (description, others).
F32, F64 = torch.float32, torch.float64
SHAPES = [AttentionShape(3, 2), AttentionShape(2, 3, 0.1), AttentionShape(2, 3, 0.2, True)]
KINDS = {
    "linear": (Linear("sym", F64), [Linear("mean", F64), Linear("sym", F32)]),
    "attention": (Attention(AttentionShape(2, 3)), [Attention(shape) for shape in SHAPES]),
    "in-degree": (InDegree(), []),
    "messages": (Messages(), []),
    "relational": (Relational(2, F64), [Relational(3, F64), Relational(2, F32)]),
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
    made = {type(one) for one, _ in KINDS.values()}
    assert made == {each for each in Operator.__subclasses__() if each.__module__.startswith("hpcgnn.ops.")}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "relational"])
def test_equal_descriptions_are_one_operator_of_a_full_halo(comm, local, kind):
    """It is made once, and a policy of its own makes its own."""
    policy, (one, others) = FullHalo(local, comm, HaloBuffers(1 << 20)), KINDS[kind]
    operator = policy.operator(one)
    assert policy.operator(replace(one)) is operator
    found = [policy.operator(other) for other in others]
    assert len({id(each) for each in (operator, *found)}) == 1 + len(others)
    assert policy.operator(one) is operator
    assert FullHalo(local, comm, HaloBuffers(1 << 20)).operator(one) is not operator


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_schedule_cannot_give_is_refused(comm, local, kind):
    """With the schedule, the models that asked for it, and what to use; on every rank, and before anything is sent."""
    policy, (one, _) = sampled_halo(comm, local), KINDS[kind]
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


def test_a_sample_has_new_operators_in_every_epoch(comm, local):
    """In an epoch all layers that ask for the same have one sample."""
    sampled, one = sampled_halo(comm, local), Linear("sum", torch.float64)
    first = sampled.operator(one)
    assert sampled.operator(Linear("sum", torch.float64)) is first
    sampled.begin_epoch(1)
    assert sampled.operator(one) is not first


def test_without_gradients_a_schedule_is_exact_and_refuses_nothing(comm, local):
    config = make_config({"graph": "g.h5", "schedule": "bns", "boundary_rate": 0.3}, CHOICES)
    policy = build_bns(local, comm, HaloBuffers(1 << 20), config, Randomness(2)).halo
    exact = FullHalo(local, comm, HaloBuffers(1 << 20))
    policy.begin_epoch(0)
    with pytest.raises(ConfigError):
        policy.operator(Messages())
    table = np.random.default_rng(3).standard_normal((local.num_nodes, 4))
    x = torch.from_numpy(table[local.original_id.numpy()])
    with torch.no_grad():
        one = Linear("mean", torch.float64)
        found, expected = (whole(comm, local, each.operator(one)(x)) for each in (policy, exact))
        np.testing.assert_array_equal(found, expected)
        assert policy.operator(Messages()) is not None
