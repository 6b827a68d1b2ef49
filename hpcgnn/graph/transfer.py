"""One turn of a stream: rows out and in, and results back. Which rows, and to whom, the plan has settled.

Nothing here computes; every function posts or finishes messages and returns at once or when they are through.
"""

import torch

from hpcgnn import kernels

_RETURN_TAG, _TAGS = 0x4000, 0x3FFF


class Transfer:
    """The messages of one turn.

    turn: its number; segments: what travels; rounds: indices of the rounds that these make up; lease: Lease of the stream;
    kind: the ledger's name. After `arrive`, rows: (rows received, F). After `open_returns`, back: (rows received, R).
    """

    def __init__(self, turn, segments, rounds, plan, lease, comm, kind):
        self.turn, self.segments, self.rounds = turn, segments, rounds
        self.plan, self.lease, self.comm, self.kind = plan, lease, comm, kind
        self.back = None

    def begin(self, x, scale):
        """Post the receives; pack own rows x (n_p, F), scaled by scale (n_p,), and post the sends."""
        self.rows = self.lease.receive(self.turn, self.plan.num_received(self.segments))
        self._receives = [self._receive(part, self.plan.source(s.offset), 0) for s, part in self._incoming(self.rows)]
        self._sends = []
        for segment, part in self._outgoing(self.lease.send(self.turn, self.plan.num_sent(self.segments))):
            kernels.pack(part, x, self.plan.sent(segment), scale)
            self._sends.append(self._send(part, self.plan.dest(segment.offset), 0))
        self._advance(self._receives, self._sends)

    def arrive(self):
        """Finish the receives; `rows` (rows received, F) are then valid."""
        self.comm.wait(self._receives, self.kind)

    def leave(self):
        """Finish the sends; their buffer is then free."""
        self.comm.wait(self._sends, self.kind)

    def open_returns(self):
        """Make `back` (rows received, R) of zeros, to be summed into."""
        self.back = self.lease.give_back(self.turn, len(self.rows)).zero_()

    def begin_returns(self):
        """Send `back` to the owners of the rows, and post the receives of what they send for ours."""
        self._arriving = self.lease.take_back(self.turn, self.plan.num_sent(self.segments))
        self._returns = [
            self._receive(part, self.plan.dest(s.offset), _RETURN_TAG) for s, part in self._outgoing(self._arriving)
        ]
        self._given = [
            self._send(part, self.plan.source(s.offset), _RETURN_TAG) for s, part in self._incoming(self.back)
        ]
        self._advance(self._returns, self._given)

    def finish_returns(self, total):
        """Finish both and add what came to total (n_p, R), in the fixed order of the plan."""
        self.comm.wait(self._returns, self.kind)
        self.comm.wait(self._given, self.kind)
        for segment, part in self._outgoing(self._arriving):
            total.index_add_(0, self.plan.sent(segment), part)

    def _incoming(self, buffer):
        return self._cut(buffer, [(s, self.plan.received(s)) for s in self.segments])

    def _outgoing(self, buffer):
        return self._cut(buffer, [(s, len(self.plan.sent(s))) for s in self.segments])

    def _cut(self, buffer, counts):
        """[(segment, its rows of the buffer)] for the segments that have any."""
        parts = buffer.split([count for _, count in counts])
        return [(segment, part) for (segment, count), part in zip(counts, parts) if count]

    def _receive(self, part: torch.Tensor, source, tag):
        return self.comm.irecv(part, source, tag | self.turn & _TAGS, self.kind)

    def _send(self, part: torch.Tensor, dest, tag):
        return self.comm.isend(part, dest, tag | self.turn & _TAGS, self.kind)

    def _advance(self, *requests):
        for group in requests:
            self.comm.progress(group)
