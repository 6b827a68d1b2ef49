"""Descriptions of operators, and the halo policies' treatment of them."""

import graphs
import numpy as np
import pytest
import torch

from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operators import Attention, InDegree, Messages, Operator, Relational, WeightedSum
from hpcgnn.schedules.bns import build_bns
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import whole
from ..small import stored
from ..training import CHOICES

F64 = torch.float64
KINDS = [WeightedSum("sym", F64), Attention(AttentionShape(2, 3)), InDegree(), Messages(), Relational(2, F64)]


@pytest.fixture(scope="module")
def local(comm, session_path):
    _, where, file = stored(comm, session_path, "random directed weighted")
    return graphs.load(file, where.maps["dealt"], comm, cap=4, keep_edges=True)


@pytest.fixture
def sampled(comm, local):
    """The policy of `bns`, whose ranks use some rows of others in training."""
    config = make_config({"graph": "g.h5", "schedule": "bns", "boundary_rate": 0.3}, CHOICES)
    policy = build_bns(local, comm, HaloBuffers(1 << 20), config, Randomness(2)).halo
    policy.begin_epoch(0)
    return policy


@pytest.mark.parametrize("one", KINDS, ids=lambda one: type(one).__name__)
def test_what_a_schedule_cannot_give_is_refused(comm, sampled, one):
    """With the schedule, the models that asked for it, and the alternative; on every rank, before anything is sent."""
    assert {type(each) for each in KINDS} == {
        each for each in Operator.__subclasses__() if each.__module__.startswith("hpcgnn.ops.")
    }
    if one.pushes:
        assert sampled.operator(one) is not None
        return
    assert one.models
    comm.ledger.take()
    with pytest.raises(ConfigError) as caught:
        sampled.operator(one)
    text = str(caught.value)
    assert "--schedule bns " in text and one.models in text and "expected gcn" in text
    assert not comm.ledger.take()


def test_without_gradients_a_schedule_is_exact_and_refuses_nothing(comm, local, sampled):
    exact = FullHalo(local, comm, HaloBuffers(1 << 20))
    table = np.random.default_rng(3).standard_normal((local.num_nodes, 4))
    x = torch.from_numpy(table[local.original_id.numpy()])
    with torch.no_grad():
        found, expected = (whole(comm, local, each.operator(KINDS[0])(x)) for each in (sampled, exact))
        np.testing.assert_array_equal(found, expected)
        assert sampled.operator(Messages()) is not None
