"""Persistent requests: made when they are used again, freed with what has made them, started by one call."""

import gc
import time

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


def test_one_call_starts_all(comm, made, monkeypatch):
    """Without a word to the communicator. Messages to the same peer are started one by one, in their order."""
    outgoing, incoming = pair(comm)
    single, double = comm.prepare(outgoing, incoming, "rows"), comm.prepare(outgoing * 2, incoming * 2, "rows")
    calls = []

    class Counting:
        """MPI, as the module sees it."""

        class Prequest:
            @staticmethod
            def Startall(requests):
                calls.append(len(requests))
                MPI.Prequest.Startall(requests)

        def __getattr__(self, name):
            return getattr(MPI, name)

    monkeypatch.setattr(mpi, "MPI", Counting())
    monkeypatch.setattr(comm, "_comm", None)  # neither Isend nor Irecv
    single().finish()
    assert calls == [2 * (comm.size - 1)]
    double().finish()
    assert calls[1:] == [1] * 4 * (comm.size - 1)
    assert made == [2 * (comm.size - 1), 4 * (comm.size - 1)]


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


def test_what_nobody_waits_for_stays_as_long_as_the_helper_thread_watches_it(comm, made):
    """As letters at the end of a run do."""
    known, peer = len(comm._prepared), peers(comm)[0]
    messages = comm.prepare(*pair(comm), "rows")
    messages().finish()
    outgoing, incoming = pair(comm, 300_000)
    letters = comm.prepare(outgoing, incoming, "letters")
    letters().finish()
    comm.barrier()
    under_way = letters()
    under_way.progress()
    del letters, under_way, messages, incoming
    gc.collect()
    end = time.monotonic() + 30
    while len(comm._prepared) > known:  # the thread lets go of them when they are through
        assert time.monotonic() < end
        time.sleep(0.001)
    comm.barrier()
    comm.exchange([(peer, torch.zeros(1))], [(peers(comm)[-1], torch.zeros(1))], "end").finish()
