"""The exact parts of overlap: the order in which messages are posted, computed behind and waited for."""

import graphs
import pytest
import torch

from hpcgnn.comm.communicator import Communicator, Exchange
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.rounds import coalesce
from hpcgnn.exchange.stream import Rows, Stream

from ..small import stored

pytestmark = pytest.mark.ranks(2, 3)

WIDTH, ROWS = 4, 3


class Noting(Communicator):
    """The verbs of another communicator, each noted with the turn that its message belongs to."""

    def __init__(self, inner):
        self._inner, self.rank, self.size = inner, inner.rank, inner.size
        self.ledger, self.heartbeat, self.events, self._turns = inner.ledger, inner.heartbeat, [], 0

    def exchange(self, outgoing, incoming, kind):
        turn, self._turns = self._turns, self._turns + 1
        self.events += [("receive", turn)] * len(incoming) + [("send", turn)] * len(outgoing)
        return NotedExchange(self._inner.exchange(outgoing, incoming, kind), turn, self.events, incoming, outgoing)


class NotedExchange(Exchange):
    """An exchange of another communicator, whose events are noted."""

    def __init__(self, inner, turn, events, incoming, outgoing):
        self._inner, self._events = inner, events
        self._receives, self._sends = [("receive", turn)] * len(incoming), [("send", turn)] * len(outgoing)

    def progress(self):
        self._events += [("progress", at) for at in (*self._receives, *self._sends)]
        self._inner.progress()

    def finish_receiving(self):
        self._events += [("wait", at) for at in self._receives]
        self._inner.finish_receiving()

    def finish_sending(self):
        self._events += [("wait", at) for at in self._sends]
        self._inner.finish_sending()


@pytest.fixture(scope="module")
def local(comm, session_path):
    _, where, file = stored(comm, session_path, "power law")
    return graphs.load(file, where.maps["dealt"], comm, cap=ROWS)


@pytest.mark.parametrize("pieces", [False, True])
def test_the_next_messages_are_under_way_while_a_block_is_computed(comm, local, pieces):
    noting, adjacency = Noting(comm), local.inward
    buffers = HaloBuffers(3 * ROWS * WIDTH * 4)
    stream = Stream(adjacency.own, adjacency.halo, adjacency.plan, buffers, noting)
    plan, turns = adjacency.plan, coalesce(adjacency.plan.sizes, ROWS)
    turn_of = {id(adjacency.halo[index]): turn for turn, group in enumerate(turns) for index in group}
    received = {turn for turn, group in enumerate(turns) if plan.starts[group[-1] + 1] > plan.starts[group[0]]}
    own = []
    for block, *_ in stream(Rows(torch.ones(local.num_owned, WIDTH), pieces=pieces), "halo"):
        mine = block.first_column is None
        own += [block] * mine
        turn = len(own) - 2 if mine else turn_of[id(block)]  # piece k of the own block comes after round k - 1
        noting.events.append(("compute", None if mine else turn))
        posted = {tag for what, tag in noting.events if what == "receive"}
        waited = {at[1] for what, at in noting.events if what == "wait" and at[0] == "receive"}
        assert posted == {number for number in received if number <= turn + 1}, "those of the next round, and no others"
        assert waited == {number for number in received if number <= turn}, "what is waited for was computed behind"
        under_way = [at for what, at in noting.events if what == "send"]
        for number in {at[1] for what, at in noting.events if what == "wait" and at[0] == "send"}:
            under_way = [at for at in under_way if at != number]
        assert len(set(under_way)) <= 1, "there is one buffer to send from"
        advanced = {at for what, at in noting.events if what == "progress"}
        assert {("receive", number) for number in posted} <= advanced, "MPI moves nothing by itself"
    events = noting.events
    for what, at in set(events):
        # A rank that receives nothing in the round before has nothing of it to compute, unless own edges lie between.
        if what == "receive" and (pieces or at == 0 or at - 1 in received):
            between = events[events.index(("receive", at)) : events.index(("wait", ("receive", at)))]
            assert "compute" in {name for name, _ in between}, "computing lies between post and wait of every message"
    covered = torch.cat([torch.arange(len(own[0].indptr) - 1) if b.rows is None else b.rows.long() for b in own])
    assert covered.tolist() == list(range(local.num_owned)), "every own row once, in order"
    assert len(own) == (len(turns) if pieces and len(turns) > 1 else 1)
    counts = [int(block.indptr[-1] - block.indptr[0]) for block in own]
    longest = int(torch.diff(adjacency.own.indptr).max())
    assert sum(counts) == adjacency.own.num_edges and max(counts) <= sum(counts) / len(own) + longest + 1
    assert comm.size == 1 or len(turns) > 3
