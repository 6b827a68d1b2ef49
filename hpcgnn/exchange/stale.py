"""The two streams of one layer with remote rows, and their gradients, of an earlier epoch.

The pushed operators of ops/ call them as a Stream. `used` yields blocks with the rows that others sent r epochs ago,
and sends this epoch's. `pushed` yields the transposed blocks with the same rows and memory for their gradients. These
leave in the background, and it adds the gradients that others sent r epochs ago. So a rank's gradient of its epoch is
whole and consistent, and reaches the owners of the rows r epochs later. The two are not each other's adjoint. An
operator over them must take the gradient of weights from its used rows (ops/convolution.py), not from the result
of `pushed`.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.exchange.buffers import HaloBuffers, Lease
from hpcgnn.exchange.edges import EdgesT, Part
from hpcgnn.exchange.mailbox import Mailbox
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.sending import Scaled
from hpcgnn.exchange.stream import Returns, Rows, RowStream
from hpcgnn.exchange.wire import Wire


class StaleExchange:
    """The exchange of one place in the model, shared by its two streams. Collective.

    plan: of the in-edges; delay: r, at least 1. ahead, home: the Mailboxes of rows and of gradients.
    """

    def __init__(self, plan: HaloPlan, buffers: HaloBuffers, comm: Communicator, wire: Wire, delay: int) -> None:
        self.plan, self.buffers, self.comm, self.wire = plan, buffers, comm, wire
        come = [(plan.source(k + 1), int(plan.receive_counts[k])) for k in np.flatnonzero(plan.receive_counts).tolist()]
        go = [(plan.dest(k + 1), int(plan.send_counts[k])) for k in np.flatnonzero(plan.send_counts).tolist()]
        self.ahead = Mailbox(comm, come, go, delay, "halo_forward")
        self.home = Mailbox(comm, go, come, delay, "halo_backward")
        self.longest = plan.longest_round
        ends = np.cumsum([0, *(count for _, count in go)]).tolist()
        self.sent = [plan.sending.part(*each) for each in itertools.pairwise(ends)]

    def rounds(self, halo: Sequence[EdgesT]) -> Iterator[tuple[EdgesT, tuple[int, int]]]:
        """(block, (start, stop)) of the rounds in which this rank receives rows, with the places of these in the
        halo.
        """
        starts = self.plan.starts.tolist()
        return (
            (block, ends) for block, ends in zip(halo, itertools.pairwise(starts), strict=True) if ends[1] > ends[0]
        )

    def lease(self, widened: int, summed: int) -> Lease:
        """Memory for one round's rows widened, and for one round's gradients."""
        self.buffers.declare(0, 0, 0, widened + summed)
        return self.buffers.lease([0] * 7 + [summed * self.longest], widened * self.longest)


class UsedRows(RowStream[EdgesT]):
    """Old rows along the in-edges. halo: one block for each round."""

    def __init__(self, exchange: StaleExchange, own: EdgesT, halo: Sequence[EdgesT]) -> None:
        self.exchange, self.own, self.halo, self.buffers = exchange, own, halo, exchange.buffers

    def __call__(self, rows: Rows, kind: str, returns: Returns | None = None) -> Iterator[Part[EdgesT]]:
        stale, x, wire = self.exchange, rows.x, self.exchange.wire
        form = wire.form(x.shape[1], x.shape[1] if rows.narrow is None else rows.narrow, x.dtype)
        draw, scale = wire.next_draw(), rows.scale if rows.sent_scale is None else rows.sent_scale
        own = Scaled(x, scale, scale)
        for number, ((message, _), sent) in enumerate(zip(stale.ahead.prepare(form), stale.sent, strict=True)):
            wire.encode_sent(message, form, own, sent, draw, stale.plan.rank, number)
        stale.ahead.post()
        lease = stale.lease(form.widened_bytes, 0)
        yield Part(self.own, x, rows.scale)
        stale.ahead.open()
        for block, (start, stop) in stale.rounds(self.halo):
            yield Part(block, stale.ahead.rows(start, stop, lease))


class PushedGradients(RowStream[EdgesT]):
    """The same old rows along the transposed blocks. Returns must be given. Arguments as of UsedRows."""

    def __init__(self, exchange: StaleExchange, own: EdgesT, halo: Sequence[EdgesT]) -> None:
        self.exchange, self.own, self.halo, self.buffers = exchange, own, halo, exchange.buffers

    def __call__(self, rows: Rows, kind: str, returns: Returns | None = None) -> Iterator[Part[EdgesT]]:
        assert returns is not None, "gradients are what it sends"
        stale, wire, x, total = self.exchange, self.exchange.wire, rows.x, returns.total
        form, ahead = wire.form(total.shape[1], returns.narrow, x.dtype), stale.ahead
        draw = kernels.stream_key(wire.next_draw(), stale.plan.rank)
        messages = stale.home.prepare(form)
        row = total.shape[1] * total.dtype.itemsize
        widened = max(form.widened_bytes, ahead.form.widened_bytes if x.shape[1] else 0)
        lease = stale.lease(widened, row)
        yield Part(self.own, x, None, total)
        for block, (start, stop) in stale.rounds(self.halo):
            back = lease.summed((stop - start) * row).view(form.dtype).view(stop - start, form.width).zero_()
            yield Part(block, ahead.rows(start, stop, lease) if x.shape[1] else back[:, :0], None, back)
            before = 0
            for message, count in messages:
                first, last = max(start, before), min(stop, before + count)
                if first < last:
                    part = back[first - start : last - start]
                    key = kernels.stream_key(draw, before)
                    wire.encode(message, form, part, key, place=(count, first - before))
                before += count
        stale.home.post()
        stale.home.open()
        step, first = max(1, stale.longest), 0
        for sent in stale.sent:
            for begin in range(0, sent.count, step):
                some = sent.part(begin, min(begin + step, sent.count))
                some.add_transposed(total, stale.home.rows(first, first + some.count, lease))
                first += some.count
