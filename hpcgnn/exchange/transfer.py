"""One turn of a stream: rows out and in, and results back. Which rows, and to whom, the plan has settled.

Only the narrowing and widening of rows, and the sums of returns within a node, compute anything here. Every function
begins or finishes messages. It returns at once or when they are through.

The ranks of a node share the buffers. Each has its lanes in them. All meet after their lanes were sent and received. So
no rank begins a turn before all have computed the one before. Then nobody reads the buffer that the turn uses again.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator, Exchange
from hpcgnn.exchange.nodes import Lane
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import merge
from hpcgnn.exchange.row_codec import MessageGroup, RowCodec, RowFormat, encode
from hpcgnn.exchange.send_matrix import Scaled, SendMatrix


class Turn:
    """The lanes of one turn of a stream, for rows of any form. Made once and used by every layer and epoch.

    Attributes:
        number: number of the turn.
        incoming, outgoing: the Lanes that this rank's node receives, and those that it sends.
        spans: [(the first, one past the last)] of the rows of each outgoing lane among all sent rows of the plan.
        places: [(round, start, stop)], the place of a round's rows among the incoming rows.
    """

    def __init__(self, number: int, rounds: Sequence[int], plan: HaloPlan) -> None:
        self.number, self.plan, peers = number, plan, plan.peers
        self.incoming, self.outgoing = list[Lane](), list[Lane]()
        self.spans = list[tuple[int, int]]()
        for segment in merge(each for index in rounds for each in plan.rounds[index]):
            first, last = plan.arriving(segment)
            self.incoming += peers.incoming(segment.offset, segment.start, last - first)
            first, last = plan.sent(segment)
            for lane in peers.outgoing(segment.offset, segment.start, last - first):
                self.outgoing.append(lane)
                self.spans.append((first + lane.start - segment.start, first + lane.stop - segment.start))
        self.num_received = sum(lane.rows for lane in self.incoming)
        starts = (plan.starts - plan.starts[min(rounds, default=0)]).tolist()
        ends = [(index, starts[index], starts[index + 1]) for index in rounds]
        self.places = [(index, start, stop) for index, start, stop in ends if stop > start]

    @cached_property
    def sent(self) -> list[SendMatrix]:
        """The rows of each outgoing lane."""
        return [self.plan.sending.part(first, last) for first, last in self.spans]

    @cached_property
    def returned(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(int32 (m,), the own rows that something returns for, lane after lane; int32 (m,), their places among the
        outgoing rows, None: all, in this order).
        """
        plan = self.plan
        assert plan.sending.sums is None, "nothing returns along a plan that sends sums"
        # The lanes of a turn follow each other.
        first, last = (self.spans[0][0], self.spans[-1][1]) if self.spans else (0, 0)
        rows = plan.sending.rows[first:last]
        if plan.columns is None:
            return rows, None
        own = plan.columns.own
        place = ((rows >= own.start) & (rows < own.stop)).nonzero().squeeze(1)
        return rows[place] - own.start, place.int()

    @cached_property
    def runs(self) -> list[tuple[slice, SendMatrix]]:
        """[(its rows among the outgoing rows, SendMatrix)] of this rank's outgoing lanes: those that follow each other
        are one; of a rank by itself all do.
        """
        runs, place, end = list[list[int]](), 0, -1
        for lane, (first, last) in zip(self.outgoing, self.spans, strict=True):
            if lane.sender == self.plan.peers.rank:
                if first != end:
                    runs.append([place, first, last])
                runs[-1][2] = end = last
            place += lane.rows
        return [(slice(at, at + last - first), self.plan.sending.part(first, last)) for at, first, last in runs]


class Transfer:
    """The messages of one turn of one stream; another stream of rows of the same form uses it again.

    After `finish`, rows(start, stop) gives the received rows. After `open_returns`, back is (rows received, R).

    Attributes:
        places: see Turn.
        received, packed: MessageGroups with rows of others, and with own rows.
        given, taken: MessageGroups with returns for rows of others, and for own rows.
    """

    def __init__(
        self,
        turn: Turn,
        pieces: Sequence[torch.Tensor],
        comm: Communicator,
        wire: RowCodec,
        form: RowFormat,
        back: RowFormat,
        ids: torch.Tensor | None = None,
    ) -> None:
        """Cut the messages.

        Args:
            pieces: of the buffers, as bytes: two to receive, one to send, two to give back, two to take back, one for
                sums of returns, one to widen rows. Even and odd turns alternate.
            form: RowFormat of the rows.
            back: RowFormat of the returns.
            ids: int64 (columns,), original ids of the plan's columns, if they are rounded at random and not this rank's
                alone.
        """
        self.turn, self.places, self.comm, self.wire, self._ids = turn, turn.places, comm, wire, ids
        self._peers = turn.plan.peers
        self.back: torch.Tensor | None = None
        odd, self._widened = turn.number % 2, pieces[8]
        self.received = MessageGroup(form, turn.incoming, pieces[odd])
        self.packed = MessageGroup(form, turn.outgoing, pieces[2])
        self.given = MessageGroup(back, turn.incoming, pieces[3 + odd])
        self.taken = MessageGroup(back, turn.outgoing, pieces[5 + odd])
        # Every rank of the node adds in a part of its own. The first one's is what is sent, unless it is narrowed.
        shape = len(self._peers.ranks), turn.num_received, back.width
        memory = pieces[7 if back.narrow else 3 + odd]
        self._added = memory[: shape[0] * shape[1] * shape[2] * back.dtype.itemsize].view(back.dtype).view(shape)
        self._messages: dict[tuple[bool, str], Callable[[], Exchange]] = {}  # by whether they return, and kind

    def begin(self, own: Scaled, draw: int, kind: str) -> None:
        """Pack rows (columns, F) of the plan's columns, and begin to send and receive. draw: key of the rounding."""
        packed, turn = self.packed, self.turn
        if packed.form.width and packed.rows is not None:
            for rows, sent in turn.runs:
                sent.pack(packed.rows[rows], own)
        elif packed.form.width:
            for lane, part, sent in zip(turn.outgoing, packed.parts, turn.sent, strict=True):
                if lane.sender == self._peers.rank:
                    place = lane.sender, turn.number, lane.offset
                    self.wire.encode(part, packed.form, own, sent, draw, *place, ids=self._ids)
        self._under_way = self._exchange(False, kind)

    def _exchange(self, returns: bool, kind: str) -> Exchange:
        """Begin to send and receive rows, or their returns; buffers, peers and sizes are always the same."""
        if (returns, kind) not in self._messages:
            rank = self._peers.rank
            outgoing, incoming = self.packed.leaving(rank), self.received.arriving(rank)
            if returns:
                outgoing, incoming = self.given.arriving(rank), self.taken.leaving(rank)
            self._messages[returns, kind] = self.comm.prepare(outgoing, incoming, kind)
        under_way = self._messages[returns, kind]()
        under_way.progress()
        return under_way

    def finish(self) -> None:
        """Wait until `rows` are valid, and the buffer that was sent from is free."""
        self._under_way.finish()
        self._peers.meet(self.turn.number)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """(stop − start, F): some of the rows received; widened ones are valid until the next are asked for."""
        return self.received.read(start, stop, self._widened)

    def open_returns(self) -> None:
        """Make `back` (rows received, R) of zeros, to be summed into."""
        self.back = self._added[self._peers.place].zero_()

    def begin_returns(self, draw: int, kind: str) -> None:
        """Send `back`, of all ranks of the node together, to where the rows came from, and begin to receive the
        returns for sent rows.
        """
        given, turn, rank = self.given, self.turn, self._peers.rank
        self._peers.meet(turn.number)  # all have added
        nothing_to_do = given.rows is not None and len(self._added) == 1
        for number, lane in enumerate(() if nothing_to_do else given.lanes):
            if lane.receiver != rank:
                continue
            total, *others = self._added[:, given.starts[number] : given.starts[number + 1]]
            for other in others:
                total += other
            if given.rows is None:
                key = kernels.stream_key(draw, rank, turn.number, lane.offset)
                encode(given.parts[number], given.form, total, key)
        self._returning = self._exchange(True, kind)

    def finish_returns(self, total: torch.Tensor) -> None:
        """Finish both and add the returns for own rows to total (n_p, R), in the fixed order of the plan."""
        self._returning.finish()
        self._peers.meet(self.turn.number)  # what came is there, whichever rank has received it
        self.taken.add(total, *self.turn.returned, self._widened)
