"""Ranks that are made one after another in one process (jobs/bench/many_ranks/rehearsal.py) are those of a job."""

import sys
from pathlib import Path

import graphs
import numpy as np
import pytest
import torch

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.graphfile.storage import GraphFile

from ..small import GRAPHS, stored

sys.path.append(str(Path(__file__).parents[3] / "jobs" / "bench" / "many_ranks"))
from rehearsal import Rehearsal  # noqa: E402

pytestmark = pytest.mark.ranks(2, 3)

CAP, WIDTH = 3, 5


def sent(adjacency, comm, num_rows):
    """(messages, bytes) of rows streamed once, a few at a time."""
    comm.ledger.take()
    stream = Stream(adjacency.own, adjacency.halo, adjacency.plan, HaloBuffers(3 * CAP * WIDTH * 4), comm)
    for _ in stream(Rows(torch.ones(num_rows, WIDTH)), "halo_forward"):
        pass
    entry = comm.ledger.take().get("halo_forward")
    return (entry.messages, entry.bytes_sent) if entry else (0, 0)


@pytest.mark.parametrize("map_name", ["dealt", "random", "one empty", "all on last"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_rehearsed_rank_is_the_real_one(comm, session_path, name, map_name):
    _, where, path = stored(comm, session_path, name)
    local = graphs.load(path, where.maps[map_name], comm, cap=CAP)
    with GraphFile(path) as file:
        rehearsal = Rehearsal(file, where.maps[map_name], comm.size, CAP)
        for rank in (comm.rank, (comm.rank + 1) % comm.size, comm.rank):  # in any order
            made, seconds = rehearsal.make(rank)
    assert seconds >= 0
    real, plan = local.inward.plan, made.plan
    assert (plan.rank, plan.size, plan.rounds) == (real.rank, real.size, real.rounds)
    for column in ("receive_counts", "send_counts", "send_rows", "starts"):
        np.testing.assert_array_equal(getattr(plan, column), getattr(real, column))
    for block, other in zip([made.own, *made.halo], [local.inward.own, *local.inward.halo], strict=True):
        assert torch.equal(block.indptr, other.indptr) and torch.equal(block.indices, other.indices)
    assert sent(made, rehearsal.comm, local.num_owned) == sent(local.inward, comm, local.num_owned)
