"""One turn of a stream: rows out and in, and results back. Which rows, and to whom, the plan has settled.

Nothing here computes but the narrowing and widening of rows; every function begins or finishes messages and returns at
once or when they are through.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator, Exchange, Message, PersistentExchange
from hpcgnn.exchange.buffers import Lease
from hpcgnn.exchange.narrow import squared_ranges
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import Segment
from hpcgnn.exchange.widths import Item
from hpcgnn.exchange.wire import Form, Wire, cut, decode, read_rows

#: (segment, its message, its rows)
Cut = tuple[Segment, torch.Tensor, int]


class Turn:
    """What travels in one turn of a stream, whatever the rows are like. Made once and used by every layer and epoch.

    number: of the turn; segments: what travels; rounds: indices of the rounds that these make up; incoming: [(segment,
    rows that come)]; outgoing: [(segment, rows that go)]; sent: Sending, what goes, message after message; sent_by: the
    same for each message; places: [(round, start, stop)], where the rows of a round stand among those that come.
    """

    def __init__(self, number: int, segments: Sequence[Segment], rounds: Sequence[int], plan: HaloPlan) -> None:
        self.number, self.plan = number, plan
        self.incoming = [(s, count) for s in segments if (count := plan.received(s))]
        sent = [(s, *span) for s in segments if (span := plan.sent(s))[1] > span[0]]
        self.outgoing = [(s, last - first) for s, first, last in sent]
        # Consecutive rounds send consecutive rows.
        self.sent = plan.sending.part(*(sent[0][1], sent[-1][2]) if sent else (0, 0))
        self.sent_by = [plan.sending.part(first, last) for _, first, last in sent]
        assert self.sent.count == sum(count for _, count in self.outgoing), "rows are sent in their order"
        self.num_received = sum(count for _, count in self.incoming)
        starts = (plan.starts - plan.starts[rounds[0]]).tolist()
        ends = [(index, starts[index], starts[index + 1]) for index in rounds]
        self.places = [(index, start, stop) for index, start, stop in ends if stop > start]

    def bytes_in(self, form: Form) -> int:
        """Bytes that the messages with rows of this form take where they arrive."""
        return sum(form.message_bytes(count) for _, count in self.incoming)

    def bytes_out(self, form: Form) -> int:
        """Bytes that they take where they are packed."""
        return sum(form.message_bytes(count) for _, count in self.outgoing)


class Transfer:
    """The messages of one turn of one stream; for another stream of rows of the same form it is used again.

    lease: of the stream; form: of the rows; back: of what returns. After `finish`, rows(start, stop) gives what was
    received. After `open_returns`, back: (rows received, R). items: what rows and returns are to `wire.widths`.
    """

    def __init__(self, turn: Turn, lease: Lease, comm: Communicator, wire: Wire, form: Form, back: Form) -> None:
        self.turn, self.plan, self.lease, self.comm = turn, turn.plan, lease, comm
        self.wire, self.form, self.form_back = wire, form, back
        self.num_received = turn.num_received
        self.back: torch.Tensor | None = None
        self.items: tuple[Item, Item] | None = None
        arrived, packed = lease.receive(turn.number, turn.bytes_in(form)), lease.send(turn.bytes_out(form))
        self._incoming = cut(arrived, turn.incoming, form)
        self._outgoing = cut(packed, turn.outgoing, form)
        self._giving = cut(lease.give_back(turn.number, turn.bytes_in(back)), turn.incoming, back)
        self._arriving = cut(lease.take_back(turn.number, turn.bytes_out(back)), turn.outgoing, back)
        # Without narrow columns the rows of all messages stand one after another.
        self._rows = None if form.narrow else arrived.view(form.dtype).view(self.num_received, form.width)
        self._packed = None if form.narrow else packed.view(form.dtype).view(turn.sent.count, form.width)
        size = self.num_received * back.width * back.dtype.itemsize
        memory = lease.summed(size) if back.narrow else lease.give_back(turn.number, size)
        self._back = memory.view(back.dtype).view(self.num_received, back.width)
        # Who sends and who gets what never changes; rows without columns are not sent.
        self._sent, self._received = _to(self._outgoing, self.plan.dest), _to(self._incoming, self.plan.source)
        self._given, self._taken = _to(self._giving, self.plan.source), _to(self._arriving, self.plan.dest)
        if form.row_bytes == 0:
            self._sent = self._received = []
        self._messages: dict[tuple[bool, str], PersistentExchange] = {}  # by whether they return, and kind

    def describe(self, kind: str, stream: int, turns: int) -> dict[str, Any]:
        """What a trace says of this turn, one of `turns` of stream number `stream`."""
        return {
            "kind": kind,
            "stream": stream,
            "turn": f"{self.turn.number + 1} of {turns}",
            "rows_received": self.num_received,
            "bytes_received": sum(part.nbytes for _, part in self._received),
            "bytes_sent": sum(part.nbytes for _, part in self._sent),
            "bytes_returned": sum(part.nbytes for _, part in self._given),
        }

    def begin(
        self, x: torch.Tensor, scale: torch.Tensor | None, within: torch.Tensor | None, draw: int, kind: str
    ) -> None:
        """Pack own rows x (n_p, F), scaled by scale (n_p,), in sums by within (n_p,), and begin to send and receive.
        draw: key of the rounding.
        """
        if self.form.row_bytes:
            self._pack(x, scale, within, draw)
            self._note(self._outgoing, self.form, 0)
        self._under_way = self._exchange(False, kind)

    def _pack(self, x: torch.Tensor, scale: torch.Tensor | None, within: torch.Tensor | None, draw: int) -> None:
        if self._packed is not None:
            if self._outgoing:
                self.turn.sent.pack(self._packed, x, scale, within)
            return
        for (segment, part, _), sent in zip(self._outgoing, self.turn.sent_by, strict=True):
            place = self.plan.rank, self.turn.number, segment.offset
            self.wire.encode_sent(part, self.form, x, sent, scale, within, draw, *place)

    def _exchange(self, returns: bool, kind: str) -> Exchange:
        """Begin to send and receive rows, or what returns for them; buffers, peers and sizes are always the same."""
        if (returns, kind) not in self._messages:
            outgoing, incoming = (self._given, self._taken) if returns else (self._sent, self._received)
            self._messages[returns, kind] = self.comm.prepare(outgoing, incoming, kind)
        under_way = self._messages[returns, kind].begin()
        under_way.progress()
        return under_way

    def _note(self, messages: Sequence[Cut], form: Form, which: int) -> None:
        """Tell the widths of `auto` how large the numbers are."""
        if self.wire.widths is None or self.items is None or form.kind is None:
            return
        parts = [(form.parts(part, count)[0], count) for _, part, count in messages]
        ranges = sum(squared_ranges(form.kind, factors) for factors, _ in parts if factors is not None)
        self.wire.widths.note(self.items[which], ranges, form.narrow * sum(count for _, count in parts))

    def finish(self) -> None:
        """Wait until `rows` are valid, and the buffer that was sent from is free."""
        self._under_way.finish()

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """(stop − start, F): some of the rows received; widened ones are valid until the next are asked for."""
        if self._rows is not None:
            return self._rows[start:stop]
        return read_rows(self._incoming, self.form, start, stop, self.lease)

    def open_returns(self) -> None:
        """Make `back` (rows received, R) of zeros, to be summed into."""
        self.back = self._back.zero_()

    def begin_returns(self, draw: int, kind: str) -> None:
        """Send `back` to the owners of the rows, and begin to receive what they send for ours."""
        form, first = self.form_back, 0
        for segment, part, count in self._giving if form.narrow else ():
            key = kernels.stream_key(draw, self.plan.rank, self.turn.number, segment.offset)
            self.wire.encode(part, form, self._back[first : first + count], None, None, key)
            first += count
        self._note(self._giving, form, 1)
        self._returning = self._exchange(True, kind)

    def finish_returns(self, total: torch.Tensor) -> None:
        """Finish both and add what came to total (n_p, R), in the fixed order of the plan."""
        self._returning.finish()
        for (_, part, _), sent in zip(self._arriving, self.turn.sent_by, strict=True):
            assert sent.sums is None, "nothing returns along a plan that sends sums"
            add_message(total, sent.rows, part, self.form_back, self.lease)


def _to(messages: Sequence[Cut], rank_of: Callable[[int], int]) -> list[Message]:
    """[(rank, message)] for what `cut` gives."""
    return [(rank_of(segment.offset), part) for segment, part, _ in messages]


def add_message(total: torch.Tensor, index: torch.Tensor, message: torch.Tensor, form: Form, lease: Lease) -> None:
    """Add the rows of a message to rows index int32 (m,) of total (n_p, R), widened in the memory that the lease has
    for it.
    """
    if not form.narrow:
        kernels.add_rows(total, index, form.parts(message, index.shape[0])[1], distinct=True)
        return
    memory = lease.widened(None).view(form.dtype)
    step = max(1, len(memory) // form.width)
    for first in range(0, len(index), step):
        count = min(step, len(index) - first)
        rows = memory[: count * form.width].view(count, form.width)
        decode(rows, form, message, len(index), first)
        kernels.add_rows(total, index[first : first + count], rows, distinct=True)
