"""The primitive that everything hangs on: remote rows stream past the rank in a bounded buffer, round after round.

`Stream(x)` yields (block, rows, scale, back): first the rank's own block with `x` itself (no message), then, for each
round, the block of that round with the rows received for it. While one round is computed the next is in flight. Rows
are valid only until the next are asked for.

Own edges are most of the computing and need no message, yet done first they hide the first round alone. So a consumer
that adds to what it has may take the own block in pieces, one before each round arrives, and then every message has its
share of the computing to hide behind. With two ranks and messages that take 0.8 of the computing, all of the transfer
is hidden instead of 11 % (jobs/bench/overlap.py --simulate 4, with and without --whole).

The adjoint direction of the same transfer: with `returns`, whatever the consumer adds to `back` (one row for each row
that it was given) travels to the owner of that row and is added to `returns` there.
"""

from dataclasses import replace
from functools import cached_property

import torch

from hpcgnn.exchange.rounds import coalesce, merge
from hpcgnn.exchange.transfer import Fashion, Transfer, Turn
from hpcgnn.exchange.wire import Wire


class Stream:
    """Streams rows along one direction of the edges.

    own: Block of edges between own nodes; halo: one Block per round; plan: HaloPlan; buffers: HaloBuffers; wire: Wire,
    how rows are sent (as they are, if left out).
    """

    def __init__(self, own, halo, plan, buffers, comm, wire=None):
        self.own, self.halo, self.plan, self.buffers, self.comm = own, halo, plan, buffers, comm
        self.wire = wire or Wire()
        self._turns_by_cap = {}
        self._pieces_by_number, self._parts_by_block = {}, {}  # of the own block
        self._longest = plan.longest_round

    @cached_property
    def first_interior(self):
        """The first of the own rows behind all that have an edge from another rank: nothing is added to those any
        more.
        """
        return max((block.span[1] for block in self.halo), default=0)

    def __call__(
        self,
        x,
        scale=None,
        kind="halo",
        returns=None,
        *,
        narrow=None,
        narrow_back=0,
        remote_scale=None,
        draw=None,
        pieces=False,
    ):
        """Yield (block, rows, scale, back) for the own block and every round. Collective: exhaust it on all ranks.

        x: (n_p, F) own rows, each contiguous; without columns, nothing is sent and only what returns travels. scale:
        (n_p,) factors of the rows, or None; remote rows arrive already scaled (by remote_scale, if that is given), and
        then the scale that is yielded is None. kind: the ledger's name for the traffic. returns: (n_p, R) of x's dtype,
        or None; back is then (rows, R), to be added to by the consumer. narrow: how many columns, from the first, may
        be narrowed (None: all); narrow_back: likewise of what returns. draw: key of the rounding; the same key rounds
        the same rows alike. pieces: whether the own block may come in pieces, each of some of its rows, between the
        rounds; it comes first and whole (and then is `own`) where there is but one round.
        """
        narrow = x.shape[1] if narrow is None else narrow
        wire, returned = self.wire, 0 if returns is None else returns.shape[1]
        fashion = Fashion(
            wire,
            wire.form(x.shape[1], narrow, x.dtype),
            wire.form(returned, narrow_back, x.dtype),
            wire.next_draw() if draw is None else draw,
            kind,
        )
        sent_scale = scale if remote_scale is None else remote_scale
        transfers = self._transfers(fashion)
        if transfers:
            transfers[0].begin(x, sent_scale)
        own = self._pieces(len(transfers)) if pieces and len(transfers) > 1 else [self.own]
        yield own[0], x, scale, returns
        for turn, transfer in enumerate(transfers):
            transfer.arrive()
            transfer.leave()
            if turn + 1 < len(transfers):
                transfers[turn + 1].begin(x, sent_scale)
            if returns is not None:
                transfer.open_returns()
            yield from self._blocks(transfer)
            for piece in own[turn + 1 : turn + 2]:
                yield piece, x, scale, returns
            if returns is not None:
                if turn > 0:
                    transfers[turn - 1].finish_returns(returns)
                transfer.begin_returns()
        if transfers and returns is not None:
            transfers[-1].finish_returns(returns)

    def parts(self, block):
        """[(Block, the slice of own rows that its rows are counted in, whether it has all edges of these)] of a block
        that the stream yields: interior rows are taken by themselves.
        """
        inner = self.first_interior
        if block.first_column is not None:
            return [(block, slice(0, inner), False)]
        if id(block) not in self._parts_by_block:
            first, last = block.span
            cuts = [(first, min(last, inner), False), (max(first, inner), last, True)]
            self._parts_by_block[id(block)] = [
                (self.own.slice(start, stop), slice(start, stop), complete)
                for start, stop, complete in cuts
                if start < stop
            ]
        return self._parts_by_block[id(block)]

    def _transfers(self, fashion):
        """One Transfer per turn: as many consecutive rounds as fit the buffers at this width. The same ones every
        time.
        """
        form, back = fashion.form, fashion.back
        summed = back.width * back.dtype.itemsize if back.narrow else 0
        widened = max(form.widened_bytes, back.widened_bytes)
        cap = self.buffers.cap(form.room(1), back.room(1), summed, widened, self._longest)
        if (form, back) not in self.buffers.cuts(self):
            turns = self._turns(cap)

            def most(values):
                return max(values, default=0)

            received = most(turn.num_received for turn in turns)
            sizes = [most(turn.room_in(form) for turn in turns)] * 2 + [most(turn.room_out(form) for turn in turns)]
            sizes += [most(turn.room_in(back) for turn in turns)] * 2 + [
                most(turn.room_out(back) for turn in turns)
            ] * 2
            lease = self.buffers.lease([*sizes, received * summed, widened * self._longest])
            self.buffers.cuts(self)[form, back] = [Transfer(turn, lease, self.comm, fashion) for turn in turns]
        for transfer in self.buffers.cuts(self)[form, back]:
            transfer.fashion = fashion
        return self.buffers.cuts(self)[form, back]

    def _turns(self, cap):
        """The Turns for buffers of `cap` rows."""
        if cap not in self._turns_by_cap:
            groups = coalesce(self.plan.rounds, cap)
            self._turns_by_cap[cap] = [
                Turn(number, merge(segment for index in group for segment in self.plan.rounds[index]), group, self.plan)
                for number, group in enumerate(groups)
            ]
        return self._turns_by_cap[cap]

    def _pieces(self, number):
        """The own block in so many pieces of consecutive rows and about as many edges."""
        if number not in self._pieces_by_number:
            indptr = self.own.indptr
            ends = torch.linspace(int(indptr[0]), int(indptr[-1]), number + 1, dtype=torch.float64)
            bounds = torch.searchsorted(indptr, ends.long()).tolist()
            bounds[0], bounds[-1] = 0, len(indptr) - 1
            rows = torch.arange(bounds[-1], dtype=torch.int32) if self.own.rows is None else self.own.rows
            self._pieces_by_number[number] = [
                replace(self.own, indptr=indptr[first : last + 1], rows=rows[first:last])
                for first, last in zip(bounds, bounds[1:])
            ]
        return self._pieces_by_number[number]

    def _blocks(self, transfer):
        """The blocks of a turn's rounds, each with its part of the rows and of what goes back."""
        for index, start, stop in transfer.turn.pieces:
            back = None if transfer.back is None else transfer.back[start:stop]
            yield self.halo[index], transfer.rows(start, stop), None, back
