"""The two streams of one layer with remote rows, and their gradients, of an earlier epoch.

The pushed operators of ops/ call them as a Stream. `used` yields blocks with the rows that others sent r epochs ago,
and sends this epoch's. `pushed` yields the transposed blocks with the same rows and memory for their gradients. These
leave in the background, and it adds the gradients that others sent r epochs ago. So a rank's gradient of its epoch is
whole and consistent, and reaches the owners of the rows r epochs later. The two are not each other's adjoint. An
operator over them must take the gradient of weights from its used rows (ops/convolve.py), not from the result
of `pushed`.

A stream ends before the layer does, in bounded memory. Rows used r epochs later cannot. A mailbox keeps r + 1 epochs of
rows, in the form in which they came, as one message from each peer. They arrive in the background of whole epochs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator, Exchange
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.peers import Lanes
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.row_codec import MessageGroup, RowCodec, RowFormat, encode
from hpcgnn.exchange.send_matrix import Scaled, SendMatrix
from hpcgnn.exchange.stream import EdgesT, Returns, RowStream, StreamInput, StreamPart
from hpcgnn.exchange.transfer import Turn


@dataclass
class Letter:
    """The received messages of one epoch, or those on their way. data: their bytes; prepared: both directions."""

    data: torch.Tensor
    prepared: Callable[[], Exchange] | None = None
    under_way: Exchange = field(default_factory=Exchange)


class Mailbox:
    """One exchange of every epoch. Letters are used `delay` epochs after they were posted; as long as there is none so
    old, the newest is waited for and used.

    turn: Turn with the lanes of the rows; home: whether gradients of rows return to their owners.
    """

    def __init__(self, comm: Communicator, turn: Turn, delay: int, home: bool) -> None:
        self._comm, self._delay, self._home, self._letters = comm, delay, home, list[Letter]()
        self._lanes = (turn.incoming, turn.outgoing) if home else (turn.outgoing, turn.incoming)
        self._sent = Exchange()
        self._outgoing: MessageGroup | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept from epoch to epoch."""
        sent = 0 if self._outgoing is None else self._bytes(self._lanes[0])
        return sent + sum(letter.data.nbytes for letter in self._letters)

    def _bytes(self, lanes: Lanes) -> int:
        return int(lanes.rows.sum()) * self.form.row_bytes

    def prepare(self, form: RowFormat) -> MessageGroup:
        """The messages to be filled, before `post`. form: the same in every epoch."""
        self._sent.finish_sending()
        if self._outgoing is None:
            self.form, (lanes, _) = form, self._lanes
            self._outgoing = MessageGroup(form, lanes, torch.empty(self._bytes(lanes), dtype=torch.uint8))
        return self._outgoing

    def post(self) -> None:
        """Send the filled result of `prepare`, and post the receives; forget the oldest letter."""
        assert self._outgoing is not None, "`prepare` comes first"
        if len(self._letters) > self._delay:
            letter = self._letters.pop(0)
        else:
            letter = Letter(torch.empty(self._bytes(self._lanes[1]), dtype=torch.uint8))
        if letter.prepared is None:
            come, rank = self._received(letter), self._comm.rank
            if self._home:
                ways = self._outgoing.messages(rank, False), come.messages(rank, True), "halo_backward"
            else:
                ways = self._outgoing.messages(rank, True), come.messages(rank, False), "halo_forward"
            letter.prepared = self._comm.prepare(*ways)
        self._sent = letter.under_way = letter.prepared()
        self._letters.append(letter)
        letter.under_way.progress()

    def _received(self, letter: Letter) -> MessageGroup:
        return MessageGroup(self.form, self._lanes[1], letter.data)

    def open(self) -> None:
        """Wait for the letter of this epoch's use, whose rows are `opened` then."""
        letter = self._letters[0 if len(self._letters) > self._delay else -1]
        letter.under_way.finish_receiving()
        self.opened = self._received(letter)

    def state(self) -> dict[str, torch.Tensor]:
        """{name: tensor} of the rows for later use, after all have arrived. Not collective, if all ranks call it."""
        self._sent.finish_sending()
        for letter in self._letters:
            letter.under_way.finish_receiving()
        return {f"letter-{index}": letter.data for index, letter in enumerate(self._letters)}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from there."""
        self._letters = [Letter(tensors[f"letter-{index}"]) for index in range(len(tensors))]


class StaleExchange:
    """The exchange of one place in the model, shared by its two streams. Collective.

    plan: of the in-edges; delay: r, at least 1. boxes: the Mailboxes of rows and of gradients, by name.
    """

    def __init__(self, plan: HaloPlan, buffers: HaloBuffers, comm: Communicator, wire: RowCodec, delay: int) -> None:
        self.turn = Turn(0, range(len(plan.rounds)), plan)
        self.buffers, self.wire, self.rank, self.longest = buffers, wire, plan.peers.number, plan.longest_round
        self.ahead, self.home = (Mailbox(comm, self.turn, delay, home) for home in (False, True))
        self.boxes = {"ahead": self.ahead, "home": self.home}

    def memory(self, widened: int, summed: int) -> list[torch.Tensor]:
        """For one round's gradients, and for one round's rows widened."""
        self.buffers.declare(0, 0, 0, widened + summed)
        return self.buffers.pieces([summed * self.longest], widened * self.longest)


class UsedRows(RowStream[EdgesT]):
    """Old rows along the in-edges. halo: one block for each round."""

    def __init__(self, exchange: StaleExchange, own: EdgesT, halo: Sequence[EdgesT]) -> None:
        self.exchange, self.own, self.halo, self.buffers = exchange, own, halo, exchange.buffers

    def __call__(self, rows: StreamInput, kind: str, returns: Returns | None = None) -> Iterator[StreamPart[EdgesT]]:
        stale, x, wire = self.exchange, rows.x, self.exchange.wire
        form = wire.form(x.shape[1], x.shape[1] if rows.narrow is None else rows.narrow, x.dtype)
        draw, scale = wire.next_draw(), rows.scale if rows.sent_scale is None else rows.sent_scale
        _, _, sent = stale.turn.packed
        by_ids = wire.at_random and sent.sums is None
        key = draw if by_ids else kernels.stream_key(draw, stale.rank)
        encode(stale.ahead.prepare(form).rows, Scaled(x, scale, scale), sent, key, wire.ids if by_ids else None)
        stale.ahead.post()
        _, wide = stale.memory(form.widened_bytes, 0)
        yield StreamPart(self.own, x, rows.scale)
        stale.ahead.open()
        for index, start, stop in stale.turn.places:
            yield StreamPart(self.halo[index], stale.ahead.opened.read(start, stop, wide))


class PushedGradients(RowStream[EdgesT]):
    """The same old rows along the transposed blocks. Returns must be given. Arguments as of UsedRows."""

    def __init__(self, exchange: StaleExchange, own: EdgesT, halo: Sequence[EdgesT]) -> None:
        self.exchange, self.own, self.halo, self.buffers = exchange, own, halo, exchange.buffers

    def __call__(self, rows: StreamInput, kind: str, returns: Returns | None = None) -> Iterator[StreamPart[EdgesT]]:
        assert returns is not None, "gradients are what it sends"
        stale, wire, x, total = self.exchange, self.exchange.wire, rows.x, returns.total
        form, ahead, home = wire.form(total.shape[1], returns.narrow, x.dtype), stale.ahead, stale.home
        draw = kernels.stream_key(wire.next_draw(), stale.rank)
        messages, row = home.prepare(form), total.shape[1] * total.dtype.itemsize
        widened = max(form.widened_bytes, ahead.form.widened_bytes if x.shape[1] else 0)
        summed, wide = stale.memory(widened, row)
        yield StreamPart(self.own, x, None, total)
        for index, start, stop in stale.turn.places:
            back = summed[: (stop - start) * row].view(form.dtype).view(stop - start, form.width).zero_()
            used = ahead.opened.read(start, stop, wide) if x.shape[1] else back[:, :0]
            yield StreamPart(self.halo[index], used, None, back)
            messages.rows.of(slice(start, stop)).write(back, draw, torch.arange(start, stop))
        home.post()
        home.open()
        step, (_, _, sent) = max(1, stale.longest), stale.turn.packed
        for first in range(0, sent.count, step):
            last = min(first + step, sent.count)
            _add_transposed(total, sent.part(first, last), home.opened.read(first, last, wide))


def _add_transposed(total: torch.Tensor, sent: SendMatrix, rows: torch.Tensor) -> None:
    """total (n_p, F) += Sᵀ rows (count, F), the returns for the rows sent to one rank, without scales."""
    sums = sent.sums
    if sums is None:
        kernels.add_rows(total, sent.rows, rows, distinct=True)
        return
    kernels.add_rows(total, sent.rows, rows, place=sums.rows_at - sums.first, distinct=True)
    begin, end = int(sums.indptr[0]), int(sums.indptr[-1])
    place = torch.repeat_interleave(sums.at - sums.first, torch.diff(sums.indptr))
    weight = None if sums.weight is None else sums.weight[begin:end]
    kernels.add_rows(total, sums.indices[begin:end], rows, place=place, weight=weight)
