"""One turn of a stream: rows out and in, and results back. Which rows, and to whom, the plan has settled.

Nothing here computes but the narrowing and widening of rows; every function posts or finishes messages and returns at
once or when they are through.
"""

from dataclasses import dataclass

import torch

from hpcgnn import kernels
from hpcgnn.exchange.wire import Form, Wire, decode

# Tags of messages with rows and of those that go back; higher ones are for exchanges that outlive a stream.
_RETURN_TAG, _TAGS, FREE_TAG = 0x2000, 0x1FFF, 0x4000


@dataclass(frozen=True)
class Fashion:
    """How the messages of a stream are made. form: of the rows; back: of what returns; draw: key of their rounding."""

    wire: Wire
    form: Form
    back: Form
    draw: int
    kind: str


class Turn:
    """What travels in one turn of a stream, whatever the rows are like. Made once and used by every layer and epoch.

    number: of the turn; segments: what travels; rounds: indices of the rounds that these make up; incoming: [(segment,
    rows that come)]; outgoing: [(segment, rows that go)]; sent: int32, which own rows go, message after message;
    sent_by: the same in one tensor for each message; pieces: [(round, start, stop)], where the rows of a round stand
    among those that come.
    """

    def __init__(self, number, segments, rounds, plan):
        self.number, self.plan = number, plan
        self.incoming = [(s, count) for s in segments if (count := plan.received(s))]
        sent = [(s, rows) for s in segments if len(rows := plan.sent(s))]
        self.outgoing = [(s, len(rows)) for s, rows in sent]
        self.sent = torch.cat([rows for _, rows in sent]) if sent else torch.empty(0, dtype=torch.int32)
        self.sent_by = self.sent.split([count for _, count in self.outgoing])
        self.num_received = sum(count for _, count in self.incoming)
        starts = (plan.starts - plan.starts[rounds[0]]).tolist()
        ends = [(index, starts[index], starts[index + 1]) for index in rounds]
        self.pieces = [(index, start, stop) for index, start, stop in ends if stop > start]

    def room_in(self, form):
        """Bytes that the messages with rows of this form take where they arrive."""
        return sum(form.room(count) for _, count in self.incoming)

    def room_out(self, form):
        """Bytes that they take where they are packed."""
        return sum(form.room(count) for _, count in self.outgoing)


class Transfer:
    """The messages of one turn of one stream; for another stream of rows of the same form it is used again.

    turn: Turn; lease: Lease of the stream; fashion: Fashion, of which `draw` and `kind` may change between streams.
    After `arrive`, rows(start, stop) gives what was received. After `open_returns`, back: (rows received, R).
    """

    def __init__(self, turn, lease, comm, fashion):
        self.turn, self.plan, self.lease, self.comm, self.fashion = turn, turn.plan, lease, comm, fashion
        self.num_received, self.back = turn.num_received, None
        form, back = fashion.form, fashion.back
        arrived, packed = lease.receive(turn.number, turn.room_in(form)), lease.send(turn.room_out(form))
        self._incoming = _cut(arrived, turn.incoming, form)
        self._outgoing = _cut(packed, turn.outgoing, form)
        self._giving = _cut(lease.give_back(turn.number, turn.room_in(back)), turn.incoming, back)
        self._arriving = _cut(lease.take_back(turn.number, turn.room_out(back)), turn.outgoing, back)
        # Without narrow columns the rows of all messages stand one after another.
        self._rows = None if form.narrow else arrived.view(form.dtype).view(self.num_received, form.width)
        self._packed = None if form.narrow else packed.view(form.dtype).view(len(turn.sent), form.width)
        size = self.num_received * back.width * back.dtype.itemsize
        memory = lease.summed(size) if back.narrow else lease.give_back(turn.number, size)
        self._back = memory.view(back.dtype).view(self.num_received, back.width)

    def begin(self, x, scale):
        """Post the receives; pack own rows x (n_p, F), scaled by scale (n_p,), and post the sends."""
        form = self.fashion.form
        self._receives, self._sends = [], []
        if form.row_bytes == 0:
            return
        self._receives = [self._receive(part, self.plan.source(s.offset), 0) for s, part, _ in self._incoming]
        if self._packed is not None and self._outgoing:
            kernels.pack(self._packed, x, self.turn.sent, scale)
        for (segment, part, _), rows in zip(self._outgoing, self.turn.sent_by):
            if self._packed is None:
                self.fashion.wire.encode(part, form, x, rows, scale, self.fashion.draw)
            self._sends.append(self._send(part, self.plan.dest(segment.offset), 0))
        self._advance(self._receives, self._sends)

    def arrive(self):
        """Finish the receives; `rows` are then valid."""
        self.comm.wait(self._receives, self.fashion.kind)

    def rows(self, start, stop):
        """(stop − start, F): some of the rows received; widened ones are valid until the next are asked for."""
        form = self.fashion.form
        if not form.narrow:
            return self._rows[start:stop]
        out = self.lease.widened((stop - start) * form.widened_bytes).view(form.dtype).view(stop - start, form.width)
        before = 0
        for _, part, count in self._incoming:
            first, last = max(start, before), min(stop, before + count)
            if first < last:
                decode(out[first - start : last - start], form, part, count, first - before)
            before += count
        return out

    def leave(self):
        """Finish the sends; their buffer is then free."""
        self.comm.wait(self._sends, self.fashion.kind)

    def open_returns(self):
        """Make `back` (rows received, R) of zeros, to be summed into."""
        self.back = self._back.zero_()

    def begin_returns(self):
        """Send `back` to the owners of the rows, and post the receives of what they send for ours."""
        form = self.fashion.back
        self._returns = [self._receive(part, self.plan.dest(s.offset), _RETURN_TAG) for s, part, _ in self._arriving]
        self._given, first = [], 0
        for segment, part, count in self._giving:
            if form.narrow:
                draw = kernels.stream_key(self.fashion.draw, self.plan.rank, self.turn.number, segment.offset)
                self.fashion.wire.encode(part, form, self.back[first : first + count], None, None, draw)
            self._given.append(self._send(part, self.plan.source(segment.offset), _RETURN_TAG))
            first += count
        self._advance(self._returns, self._given)

    def finish_returns(self, total):
        """Finish both and add what came to total (n_p, R), in the fixed order of the plan."""
        form = self.fashion.back
        self.comm.wait(self._returns, self.fashion.kind)
        self.comm.wait(self._given, self.fashion.kind)
        for (_, part, _), rows in zip(self._arriving, self.turn.sent_by):
            add_message(total, rows, part, form, self.lease)

    def _receive(self, part: torch.Tensor, source, tag):
        return self.comm.irecv(part, source, tag | self.turn.number & _TAGS, self.fashion.kind)

    def _send(self, part: torch.Tensor, dest, tag):
        return self.comm.isend(part, dest, tag | self.turn.number & _TAGS, self.fashion.kind)

    def _advance(self, *requests):
        for group in requests:
            self.comm.progress(group)


def add_message(total, index, message, form, lease):
    """Add the rows of a message to rows index int32 (m,) of total (n_p, R), widened in the room that the lease has for
    it.
    """
    if not form.narrow:
        total.index_add_(0, index, form.parts(message, index.shape[0])[1])
        return
    room = lease.widened(None).view(form.dtype)
    step = max(1, len(room) // form.width)
    for first in range(0, len(index), step):
        count = min(step, len(index) - first)
        rows = room[: count * form.width].view(count, form.width)
        decode(rows, form, message, len(index), first)
        total.index_add_(0, index[first : first + count], rows)


def _cut(buffer, counts, form):
    """[(segment, its message, its rows)] of a buffer, for segments that have rows."""
    parts = buffer.split([form.room(count) for _, count in counts])
    return [(segment, part[: count * form.row_bytes], count) for (segment, count), part in zip(counts, parts)]
