"""The exact parts of overlap: the order in which messages are posted, computed behind and waited for."""

import collections

import graphs
import pytest
import torch

from hpcgnn.comm.communicator import Communicator, Exchange
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.rounds import coalesce
from hpcgnn.exchange.stream import Stream, StreamInput

from ..small import stored

pytestmark = pytest.mark.ranks(2, 3)

WIDTH, ROWS = 4, 3


class Noting(Communicator):
    """The exchanges of another communicator. turns: {event: numbers of the exchanges that had it}."""

    def __init__(self, inner):
        self._inner, self.rank, self.size = inner, inner.rank, inner.size
        self.ledger, self.heartbeat, self.turns = inner.ledger, inner.heartbeat, collections.defaultdict(list)

    def exchange(self, outgoing, incoming, kind):
        self.turns["begun"].append(len(self.turns["begun"]))
        return Noted(self._inner.exchange(outgoing, incoming, kind), self.turns, self.turns["begun"][-1])


class Noted(Exchange):
    def __init__(self, inner, turns, number):
        self._inner, self._turns, self._number = inner, turns, number

    def progress(self):
        self._turns["advanced"].append(self._number)
        self._inner.progress()

    def finish_receiving(self):
        self._turns["received"].append(self._number)
        self._inner.finish_receiving()

    def finish_sending(self):
        self._turns["sent"].append(self._number)
        self._inner.finish_sending()


@pytest.mark.parametrize("pieces", [False, True])
def test_the_next_messages_are_under_way_while_a_block_is_computed(comm, session_path, pieces):
    _, where, file = stored(comm, session_path, "power law")
    local = graphs.load(file, where.maps["dealt"], comm, cap=ROWS)
    noting, adjacency = Noting(comm), local.inward
    buffers = HaloBuffers(3 * ROWS * WIDTH * 4)
    stream = Stream(adjacency.own, adjacency.halo, adjacency.plan, buffers, noting)
    turns, own = coalesce(adjacency.plan.sizes, ROWS), 0
    turn_of = {id(adjacency.halo[index]): turn for turn, group in enumerate(turns) for index in group}
    for block, *_ in stream(StreamInput(torch.ones(local.num_owned, WIDTH), pieces=pieces), "halo"):
        own += block.first_column is None
        turn = own - 2 if block.first_column is None else turn_of[id(block)]  # piece k comes after round k - 1
        begun = list(range(min(turn + 2, len(turns))))
        assert noting.turns["begun"] == begun, "those of the next round, and no others"
        assert noting.turns["advanced"] == begun, "MPI moves nothing by itself"
        for event in ("received", "sent"):
            assert noting.turns[event] == begun[: turn + 1], "what is waited for was computed behind"
    assert own == (len(turns) if pieces else 1) and len(turns) > 3
