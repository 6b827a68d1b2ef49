"""The two streams of one layer whose remote rows, and their gradients, are those of an earlier epoch.

They look like a Stream to the operators of ops/pushed.py: `used` yields blocks with the rows that others sent r epochs
ago, and sends this epoch's; `pushed` yields the transposed blocks with the same rows and room for their gradients,
which leave in the background, and adds those that others sent r epochs ago. So a rank's gradient of what it computed in
an epoch is whole and consistent, and reaches the owners of the rows r epochs later. The two are not each other's
adjoint: an operator over them must take the gradient of weights from the rows that it used (ops/stale_convolution.py),
not from what `pushed` returns.
"""

from hpcgnn import kernels
from hpcgnn.exchange.mailbox import Mailbox
from hpcgnn.exchange.transfer import FREE_TAG


class _Direction:
    """A function in the place of a Stream of these blocks: the own one, and one for each round."""

    def __init__(self, function, blocks, buffers):
        self._function, self.own, self.halo, self.buffers = function, blocks[0], blocks[1], buffers

    def __call__(self, *arguments, **options):
        return self._function(*arguments, **options)


class DelayedLayer:
    """The exchange of one place in the model. Collective.

    blocks, transposed: (own Block, one Block per round) of in-edges, and their transposes; number: of the place in the
    model, from 0; delay: r, at least 1; smoothing: see Mailbox. used, pushed: the two streams.
    """

    def __init__(self, blocks, transposed, plan, buffers, comm, wire, number, delay, smoothing):
        assert 2 * number + 1 < FREE_TAG, "tags are used up"
        self._blocks, self._transposed, self._plan, self._buffers, self._wire = blocks, transposed, plan, buffers, wire
        offsets = range(1, plan.size)
        come = [(plan.source(k), plan.receive_rows[k - 1]) for k in offsets]
        go = [(plan.dest(k), len(plan.send_rows[k - 1])) for k in offsets]
        tag = FREE_TAG + 2 * number
        self.ahead = Mailbox(comm, come, go, tag, delay, smoothing, "halo_forward")
        self.home = Mailbox(comm, go, come, tag + 1, delay, smoothing, "halo_backward")
        self._longest = plan.longest_round
        self._send_rows = [rows for rows in plan.send_rows if len(rows)]

        self.used = _Direction(self._use, blocks, buffers)
        self.pushed = _Direction(self._push, transposed, buffers)

    def _use(self, x, scale=None, kind=None, returns=None, *, narrow=None, remote_scale=None, pieces=False):
        """Yield (block, rows, scale, None) as a Stream does; see there. The own block is always whole."""
        wire, form = self._wire, self._wire.form(x.shape[1], x.shape[1] if narrow is None else narrow, x.dtype)
        draw = wire.next_draw()
        for (message, _), rows in zip(self.ahead.prepare(form), self._send_rows):
            wire.encode(message, form, x, rows, scale if remote_scale is None else remote_scale, draw)
        self.ahead.post()
        (own, halo), lease = self._blocks, self._lease(form.widened_bytes, 0)
        yield own, x, scale, None
        self.ahead.open(lease)
        for block, (start, stop) in self._rounds(halo):
            yield block, self.ahead.rows(start, stop, lease), None, None

    def _push(self, x, scale=None, kind=None, returns=None, *, narrow=None, narrow_back=0):
        """Yield (transposed block, rows, None, back); afterwards `returns` (n_p, R) has what came for own rows, too."""
        wire, form = self._wire, self._wire.form(returns.shape[1], narrow_back, x.dtype)
        draw = kernels.stream_key(wire.next_draw(), self._plan.rank)
        messages = self.home.prepare(form)
        row = returns.shape[1] * returns.dtype.itemsize
        widened = max(form.widened_bytes, self.ahead.form.widened_bytes if x.shape[1] else 0)
        (own, halo), lease = self._transposed, self._lease(widened, row)
        yield own, x, None, returns
        for block, (start, stop) in self._rounds(halo):
            back = lease.summed((stop - start) * row).view(form.dtype).view(stop - start, form.width).zero_()
            yield block, self.ahead.rows(start, stop, lease) if x.shape[1] else back[:, :0], None, back
            before = 0
            for message, rows in messages:
                first, last = max(start, before), min(stop, before + rows)
                if first < last:
                    part = back[first - start : last - start]
                    key = kernels.stream_key(draw, before)
                    wire.encode(message, form, part, None, None, key, rows, first - before)
                before += rows
        self.home.post()
        self.home.open(lease)
        step, first = max(1, self._longest), 0
        for rows in self._send_rows:
            for index in rows.split(step):
                returns.index_add_(0, index, self.home.rows(first, first + len(index), lease))
                first += len(index)

    def _rounds(self, halo):
        starts = self._plan.starts.tolist()
        return ((block, ends) for block, ends in zip(halo, zip(starts[:-1], starts[1:])) if ends[1] > ends[0])

    def _lease(self, widened, summed):
        """Room for one round's rows widened, and for one round's gradients."""
        self._buffers.cap(0, 0, 0, widened + summed, self._longest)
        return self._buffers.lease([0] * 7 + [summed * self._longest, widened * self._longest])
