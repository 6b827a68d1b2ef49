"""Persistent requests: made when they are used again, and freed with their maker."""

import gc

import pytest
import torch
from mpi4py import MPI

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.processes]


@pytest.mark.parametrize("watched", [True, False], ids=["helper-thread", "no-thread"])
def test_requests_are_freed_after_their_messages(comm, watched):
    """Those of the library too, which mpi4py forgets without freeing them. And no earlier than their messages have been
    waited for, though nobody else holds them: the helper thread may look at them.
    """
    if not hasattr(comm, "_prepared") or not comm.pairwise:
        pytest.skip("nothing is prepared")
    known, peers = list(comm._prepared), [rank for rank in range(comm.size) if rank != comm.rank]
    for _ in range(30):
        outgoing, incoming = ([(rank, torch.zeros(300_000)) for rank in peers] for _ in range(2))
        messages = comm.prepare(outgoing, incoming, "rows")
        messages().finish()
        (owner,) = [each for each in comm._prepared if each not in known]
        requests = [*owner._receives, *owner._sends]
        assert all(each != MPI.REQUEST_NULL for each in requests)
        for _, tensor in outgoing:
            tensor.fill_(comm.rank + 1.0)
        under_way = messages()
        if watched:
            under_way.progress()
        del messages, owner
        gc.collect()
        assert len(comm._prepared) == len(known) + 1
        under_way.finish()
        assert all(bool((tensor == rank + 1).all()) for rank, tensor in incoming)
        del under_way
        gc.collect()
        assert len(comm._prepared) == len(known) and all(each == MPI.REQUEST_NULL for each in requests)
