"""One turn of a stream: rows out and in, and results back. Which rows, and to whom, the plan has settled.

Only the narrowing and widening of rows, and the sums of returns within a node, compute anything here. Every function
begins or finishes messages. It returns at once or when they are through.

The ranks of a node share the buffers. Each has its lanes in them. All meet after their lanes were sent and received. So
no rank begins a turn before all have computed the one before. Then nobody reads the buffer that the turn uses again.
"""

from collections.abc import Sequence
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator, Exchange, PersistentExchange
from hpcgnn.exchange.buffers import Lease
from hpcgnn.exchange.peers import Lane
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import Segment
from hpcgnn.exchange.sending import Scaled, Sending
from hpcgnn.exchange.wire import Form, Wire, cut, decode, read_rows


class Turn:
    """The messages of one turn of a stream, for rows of any form. Made once and used by every layer and epoch.

    Attributes:
        number: number of the turn.
        segments: segments of the rows.
        rounds: indices of the rounds of these segments.
        incoming: [(Lane, its rows)] that this rank's node receives.
        outgoing: [(Lane, its rows)] that it sends.
        spans: [(the first, one past the last)] of the outgoing rows among all sent rows of the plan.
        sent_by: Sending of each lane that this rank sends.
        sent: [(the first of its rows among the outgoing rows, Sending)], the same, with consecutive ones as one.
        places: [(round, start, stop)], the place of a round's rows among the incoming rows.
    """

    def __init__(self, number: int, segments: Sequence[Segment], rounds: Sequence[int], plan: HaloPlan) -> None:
        self.number, self.plan = number, plan
        peers = plan.peers
        self.incoming = [
            (lane, lane.rows)
            for s in segments
            if (count := plan.received(s))
            for lane in peers.incoming(s.offset, s.start, count)
        ]
        self.outgoing, self.spans = list[tuple[Lane, int]](), list[tuple[int, int]]()
        for s in segments:
            first, last = plan.sent(s)
            for lane in peers.outgoing(s.offset, s.start, last - first) if last > first else ():
                self.outgoing.append((lane, lane.rows))
                self.spans.append((first + lane.start - s.start, first + lane.stop - s.start))
        mine = [span for (lane, _), span in zip(self.outgoing, self.spans, strict=True) if lane.sender == peers.rank]
        self.sent_by = [plan.sending.part(first, last) for first, last in mine]
        self.sent = self._packed_together()
        self.num_sent = sum(each.count for _, each in self.sent)
        self.num_received = sum(count for _, count in self.incoming)
        starts = (plan.starts - plan.starts[rounds[0]]).tolist()
        ends = [(index, starts[index], starts[index + 1]) for index in rounds]
        self.places = [(index, start, stop) for index, start, stop in ends if stop > start]

    def _packed_together(self) -> list[tuple[int, Sending]]:
        """`sent`: lanes that follow each other are packed as one; of a rank by itself all do."""
        runs, place, end = list[list[int]](), 0, -1
        for (lane, count), (first, last) in zip(self.outgoing, self.spans, strict=True):
            if lane.sender == self.plan.peers.rank:
                if first != end:
                    runs.append([place, first, last])
                runs[-1][2] = end = last
            place += count
        return [(place, self.plan.sending.part(first, last)) for place, first, last in runs]

    def bytes_in(self, form: Form) -> int:
        """Bytes that the messages with rows of this form take where they arrive, for all of the node."""
        return sum(form.message_bytes(count) for _, count in self.incoming)

    def bytes_out(self, form: Form) -> int:
        """Bytes of the packed messages of all ranks of the node."""
        return sum(form.message_bytes(count) for _, count in self.outgoing)


class Transfer:
    """The messages of one turn of one stream; another stream of rows of the same form uses it again.

    After `finish`, rows(start, stop) gives the received rows. After `open_returns`, back is (rows received, R).

    Attributes:
        lease: the stream's pieces of the buffers.
        form: Form of the rows.
        back: Form of the returns.
        ids: int64 (columns,), original ids of the plan's columns, if they are rounded at random and not this rank's
            alone.
    """

    def __init__(
        self,
        turn: Turn,
        lease: Lease,
        comm: Communicator,
        wire: Wire,
        form: Form,
        back: Form,
        ids: torch.Tensor | None = None,
    ) -> None:
        self.turn, self.plan, self.lease, self.comm, self.ids = turn, turn.plan, lease, comm, ids
        self.wire, self.form, self.form_back = wire, form, back
        self.num_received = turn.num_received
        self.back: torch.Tensor | None = None
        peers = self.plan.peers
        arrived = lease.receive(turn.number, turn.bytes_in(form))
        packed = lease.send(turn.bytes_out(form))
        self._incoming = cut(arrived, turn.incoming, form)
        self._outgoing = [each for each in cut(packed, turn.outgoing, form) if each[0].sender == peers.rank]
        # Without narrow columns the rows of all messages stand one after another.
        self._rows = None if form.narrow else arrived.view(form.dtype).view(self.num_received, form.width)
        rows_packed = sum(count for _, count in turn.outgoing)
        self._packed = None if form.narrow else packed.view(form.dtype).view(rows_packed, form.width)
        # Who sends and who gets what never changes; rows without columns are not sent.
        self._sent = [(lane.receiver, part) for lane, part, _ in self._outgoing]
        self._received = [(lane.sender, part) for lane, part, _ in self._incoming if lane.receiver == peers.rank]
        if form.row_bytes == 0:
            self._sent = self._received = []
        self._prepare_returns(back)
        self._messages: dict[tuple[bool, str], PersistentExchange] = {}  # by whether they return, and kind

    def _prepare_returns(self, back: Form) -> None:
        """Cut the memory for returns: for every rank of the node a part in which it adds, then the messages."""
        turn, peers, lease = self.turn, self.plan.peers, self.lease
        shape = len(peers.ranks), self.num_received, back.width
        size = shape[0] * shape[1] * shape[2] * back.dtype.itemsize
        memory = lease.summed(size) if back.narrow else lease.give_back(turn.number, size)
        self._added = memory.view(back.dtype).view(shape)
        ends, place = dict[Lane, tuple[int, int]](), 0
        for lane, count in turn.incoming:
            ends[lane], place = (place, place + count), place + count
        lanes = [(lane, count) for lane, count in turn.incoming if lane.receiver == peers.rank]
        self._to_sum = [ends[lane] for lane, _ in lanes]
        if back.narrow:
            given = cut(lease.give_back(turn.number, turn.bytes_in(back)), turn.incoming, back)
            self._giving = [each for each in given if each[0].receiver == peers.rank]
        else:
            parts = (self._added[0, slice(*ends[lane])].view(-1).view(torch.uint8) for lane, _ in lanes)
            self._giving = (
                [(lane, part, count) for (lane, count), part in zip(lanes, parts, strict=True)] if back.width else []
            )
        self._arriving = cut(lease.take_back(turn.number, turn.bytes_out(back)), turn.outgoing, back)
        self._given = [(lane.sender, part) for lane, part, _ in self._giving]
        self._taken = [(lane.receiver, part) for lane, part, _ in self._arriving if lane.sender == peers.rank]

    def describe(self, kind: str, stream: int, turns: int) -> dict[str, Any]:
        """The trace's description of this turn, one of `turns` of stream number `stream`."""
        return {
            "kind": kind,
            "stream": stream,
            "turn": f"{self.turn.number + 1} of {turns}",
            "rows_received": self.num_received,
            "bytes_received": sum(part.nbytes for _, part in self._received),
            "bytes_sent": sum(part.nbytes for _, part in self._sent),
            "bytes_returned": sum(part.nbytes for _, part in self._given),
        }

    def begin(self, own: Scaled, draw: int, kind: str) -> None:
        """Pack rows (columns, F) of the plan's columns, and begin to send and receive. draw: key of the rounding."""
        if self.form.row_bytes:
            self._pack(own, draw)
        self._under_way = self._exchange(False, kind)

    def _pack(self, own: Scaled, draw: int) -> None:
        if self._packed is not None:
            for first, sent in self.turn.sent:
                sent.pack(self._packed[first : first + sent.count], own)
            return
        for (lane, part, _), sent in zip(self._outgoing, self.turn.sent_by, strict=True):
            place = self.plan.peers.rank, self.turn.number, lane.offset
            self.wire.encode_sent(part, self.form, own, sent, draw, *place, ids=self.ids)

    def _exchange(self, returns: bool, kind: str) -> Exchange:
        """Begin to send and receive rows, or their returns; buffers, peers and sizes are always the same."""
        if (returns, kind) not in self._messages:
            outgoing, incoming = (self._given, self._taken) if returns else (self._sent, self._received)
            self._messages[returns, kind] = self.comm.prepare(outgoing, incoming, kind)
        under_way = self._messages[returns, kind].begin()
        under_way.progress()
        return under_way

    def finish(self) -> None:
        """Wait until `rows` are valid, and the buffer that was sent from is free."""
        self._under_way.finish()
        self.plan.peers.meet(self.turn.number)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """(stop − start, F): some of the rows received; widened ones are valid until the next are asked for."""
        if self._rows is not None:
            return self._rows[start:stop]
        return read_rows(self._incoming, self.form, start, stop, self.lease)

    def open_returns(self) -> None:
        """Make `back` (rows received, R) of zeros, to be summed into."""
        self.back = self._added[self.plan.peers.place].zero_()

    def begin_returns(self, draw: int, kind: str) -> None:
        """Send `back`, of all ranks of the node together, to where the rows came from, and begin to receive the
        returns for sent rows.
        """
        form, peers = self.form_back, self.plan.peers
        peers.meet(self.turn.number)  # all have added
        for (first, last), (lane, part, _) in zip(self._to_sum, self._giving, strict=True):
            total = self._added[0, first:last]
            for others in self._added[1:]:
                total += others[first:last]
            if form.narrow:
                key = kernels.stream_key(draw, peers.rank, self.turn.number, lane.offset)
                self.wire.encode(part, form, total, key)
        self._returning = self._exchange(True, kind)

    def finish_returns(self, total: torch.Tensor) -> None:
        """Finish both and add the returns for own rows to total (n_p, R), in the fixed order of the plan."""
        self._returning.finish()
        peers, columns = self.plan.peers, self.plan.columns
        peers.meet(self.turn.number)  # what came is there, whichever rank has received it
        own = None if peers.rows is None or columns is None else columns.own
        for (_, part, _), span in zip(self._arriving, self.turn.spans, strict=True):
            sent = self.plan.sending.part(*span)
            assert sent.sums is None, "nothing returns along a plan that sends sums"
            add_message(total, sent.rows, part, self.form_back, self.lease, own)


def add_message(
    total: torch.Tensor, index: torch.Tensor, message: torch.Tensor, form: Form, lease: Lease, own: slice | None = None
) -> None:
    """Add the rows of a message to rows index int32 (m,), ascending, of total (n_p, R).

    They are widened in the lease's memory. own: None, or the part of `index` with rows in total; others are left out.
    """
    begin, end, base = 0, len(index), 0
    if own is not None:
        begin, end = torch.searchsorted(index, torch.tensor([own.start, own.stop], dtype=index.dtype)).tolist()
        base = own.start
    if begin == end:
        return
    rows_at = index[begin:end] - base if base else index[begin:end]
    if not form.narrow:
        kernels.add_rows(total, rows_at, form.parts(message, index.shape[0])[1][begin:end], distinct=True)
        return
    memory = lease.widened(None).view(form.dtype)
    step = max(1, len(memory) // form.width)
    for first in range(begin, end, step):
        count = min(step, end - first)
        rows = memory[: count * form.width].view(count, form.width)
        decode(rows, form, message, len(index), first)
        kernels.add_rows(total, rows_at[first - begin : first - begin + count], rows, distinct=True)
