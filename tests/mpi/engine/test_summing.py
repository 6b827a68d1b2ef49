"""Sums of gradients over ranks that travel as bf16."""

import numpy as np
import pytest
import torch

from hpcgnn.exchange.rounded_sum import RoundedSums

from ..estimate.test_estimated import check
from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2, 3)


def rounded_sum(comm, numbers):
    """What every rank is to get: a sum in fp32, by rank, of what was rounded, rounded."""
    total = torch.zeros_like(numbers)
    for each in comm.allgather_object(numbers.bfloat16()):
        total += each
    return total.bfloat16().float()


@pytest.mark.parametrize("early", [False, True], ids=["at the end", "early"])
def test_rounded_sums(comm, early):
    """Several under way, of lengths that P divides or not, or that are less than P, begun late by some ranks."""
    sums, generator = RoundedSums(comm, "allreduce"), torch.Generator().manual_seed(comm.rank)
    given = [torch.randn(length, generator=generator) for length in (1, 12, 70_001, 2)]
    expected = [rounded_sum(comm, each) for each in given]
    comm.ledger.take()
    if early and comm.pairwise:
        under_way = []
        for each in given:
            under_way.append(sums.begin_(each))
            if comm.rank == 0:
                comm.exchange([], [], "nothing").finish()
        for each in under_way:
            each.finish()
    else:
        for each in given:
            sums.begin_(each).finish()
    assert all(torch.equal(each, right) for each, right in zip(given, expected))
    traffic, shares = comm.ledger.take(), sum(-(-len(each) // comm.size) for each in given)
    assert set(traffic) <= {"allreduce", "nothing"}
    if comm.size > 1:
        sent = traffic["allreduce"]
        assert sent.messages == 4 * 2 * (comm.size - 1) and sent.bytes_sent == 2 * 2 * (comm.size - 1) * shares


def test_rounded_gradients(comm, graph):
    """Learn nearly the same, with the same bits in each run, and in as many bytes as were foretold."""
    options = {"model": "sage", "reduce_dtype": "bf16", "epochs": 12}
    losses = []
    for more in ({}, {}, {"reduce_dtype": "fp32"}):
        trainer = build_trainer(comm, configure(graph, **{**options, **more}), "metis")
        losses.append([trainer.step(epoch) for epoch in range(12)])
    assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[0], losses[2], rtol=0.02)
    assert losses[0] != losses[2] or comm.size == 1
    check(comm, configure(graph, **options), "metis")
