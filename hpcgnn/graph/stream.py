"""The primitive that everything hangs on: remote rows stream past the rank in a bounded buffer, round after round.

`Stream(x)` yields (block, rows, scale, back): first the rank's own block with `x` itself (no message), then, for each
round, the block of that round with the rows received for it. While one round is computed the next is in flight. Rows
are valid only until the next are asked for.

The adjoint direction of the same transfer: with `returns`, whatever the consumer adds to `back` (one row for each row
that it was given) travels to the owner of that row and is added to `returns` there.
"""

from hpcgnn.graph.rounds import coalesce, merge
from hpcgnn.graph.transfer import Transfer


class Stream:
    """Streams rows along one direction of the edges.

    own: Block of edges between own nodes; halo: one Block per round; plan: HaloPlan; buffers: HaloBuffers.
    """

    def __init__(self, own, halo, plan, buffers, comm):
        self.own, self.halo, self.plan, self.buffers, self.comm = own, halo, plan, buffers, comm
        self._turns_by_cap = {}

    def __call__(self, x, scale=None, kind="halo", returns=None):
        """Yield (block, rows, scale, back) for the own block and every round. Collective: exhaust it on all ranks.

        x: (n_p, F) own rows, each contiguous. scale: (n_p,) factors of the rows, or None; remote rows arrive already
        scaled, and then the scale that is yielded is None. kind: the ledger's name for the traffic. returns: (n_p, R) of
        x's dtype, or None; back is then (rows, R), to be added to by the consumer.
        """
        transfers = self._transfers(x, 0 if returns is None else returns.shape[1], kind)
        if transfers:
            transfers[0].begin(x, scale)
        yield self.own, x, scale, returns
        for turn, transfer in enumerate(transfers):
            transfer.arrive()
            if turn > 0:
                transfers[turn - 1].leave()
            if turn + 1 < len(transfers):
                transfers[turn + 1].begin(x, scale)
            if returns is not None:
                transfer.open_returns()
            yield from self._blocks(transfer)
            if returns is not None:
                if turn > 0:
                    transfers[turn - 1].finish_returns(returns)
                transfer.begin_returns()
        if transfers:
            transfers[-1].leave()
            if returns is not None:
                transfers[-1].finish_returns(returns)

    def _transfers(self, x, returned, kind):
        """One Transfer per turn: as many consecutive rounds as fit the buffers at this width."""
        size = x.dtype.itemsize
        turns = self._turns(self.buffers.cap(x.shape[1] * size, returned * size))
        rows_in = max((self.plan.num_received(segments) for segments, _ in turns), default=0)
        rows_out = max((self.plan.num_sent(segments) for segments, _ in turns), default=0)
        lease = self.buffers.lease(rows_in, rows_out, x.shape[1], returned, x.dtype)
        return [
            Transfer(turn, segments, rounds, self.plan, lease, self.comm, kind)
            for turn, (segments, rounds) in enumerate(turns)
        ]

    def _turns(self, cap):
        """[(segments, indices of the rounds)] of every turn for buffers of `cap` rows."""
        if cap not in self._turns_by_cap:
            groups = coalesce(self.plan.rounds, cap)
            self._turns_by_cap[cap] = [
                (merge(segment for index in group for segment in self.plan.rounds[index]), group) for group in groups
            ]
        return self._turns_by_cap[cap]

    def _blocks(self, transfer):
        """The blocks of a turn's rounds, each with its part of the rows and of what goes back."""
        first = self.plan.starts[transfer.rounds[0]]
        for index in transfer.rounds:
            start, stop = self.plan.starts[index : index + 2] - first
            if stop > start:
                back = None if transfer.back is None else transfer.back[start:stop]
                yield self.halo[index], transfer.rows[start:stop], None, back
