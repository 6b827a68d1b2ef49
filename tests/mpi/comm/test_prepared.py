"""Persistent requests: made when they are used again, and freed with their maker."""

import gc

import pytest
import torch
from mpi4py import MPI

from hpcgnn.comm import mpi

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.processes]


@pytest.fixture
def made(comm, monkeypatch):
    """[MpiPersistentRequests] that are made in a test: as many as there are, not the objects."""
    if comm.size == 1 or not hasattr(comm, "_prepared") or not comm.pairwise:
        pytest.skip("nothing is prepared")
    counts = []
    init = mpi.MpiPersistentRequests.__init__

    def counted(self, communicator, outgoing, incoming, tag):
        counts.append(len(outgoing) + len(incoming))
        init(self, communicator, outgoing, incoming, tag)

    monkeypatch.setattr(mpi.MpiPersistentRequests, "__init__", counted)
    return counts


def peers(comm):
    return [(comm.rank + offset) % comm.size for offset in range(1, comm.size)]


def pair(comm, size=3):
    """(outgoing, incoming): a message to each other rank, and one from each."""
    return tuple([(rank, torch.zeros(size)) for rank in peers(comm)] for _ in range(2))


def test_what_was_prepared_is_freed_with_it(comm, made):
    """The library's requests too, which mpi4py forgets without freeing them."""
    known = list(comm._prepared)
    for _ in range(30):
        messages = comm.prepare(*pair(comm), "rows")
        for _ in range(3):
            messages().finish()
        (owner,) = [each for each in comm._prepared if each not in known]
        requests = [*owner._receives, *owner._sends]
        assert all(each != MPI.REQUEST_NULL for each in requests)
        del messages, owner
        gc.collect()
        assert len(comm._prepared) == len(known) and all(each == MPI.REQUEST_NULL for each in requests)


@pytest.mark.parametrize("watched", [True, False], ids=["helper-thread", "no-thread"])
def test_what_is_under_way_outlives_what_has_begun_it(comm, made, watched):
    """Its requests are freed when it has been waited for, and no earlier: the helper thread may look at them."""
    known = len(comm._prepared)
    outgoing, incoming = pair(comm, 300_000)
    messages = comm.prepare(outgoing, incoming, "rows")
    messages().finish()
    for _, tensor in outgoing:
        tensor.fill_(comm.rank + 1.0)
    under_way = messages()
    if watched:
        under_way.progress()
    del messages
    gc.collect()
    assert len(comm._prepared) == known + 1
    under_way.finish()
    assert all(bool((tensor == rank + 1).all()) for rank, tensor in incoming)
    gc.collect()
    assert len(comm._prepared) == known
