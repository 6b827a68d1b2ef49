"""One turn of a stream: rows out and in, and results back. Which rows, and to whom, the plan has settled.

Only the narrowing and widening of rows, and the sums of returns within a node, compute anything here. Every function
begins or finishes messages. It returns at once or when they are through.

The ranks of a node share the buffers. Each has its lanes in them. All meet after their lanes were sent and received. So
no rank begins a turn before all have computed the one before. Then nobody reads the buffer that the turn uses again.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator, Exchange
from hpcgnn.exchange.peers import Lanes
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import merge
from hpcgnn.exchange.row_codec import MessageGroup, RowCodec, RowFormat, encode
from hpcgnn.exchange.send_matrix import Scaled, SendMatrix


class Turn:
    """The lanes of one turn of a stream, for rows of any form. Made once and used by every layer and epoch.

    Attributes:
        number: number of the turn.
        incoming, outgoing: the Lanes that this rank's node receives, and those that it sends.
        num_received, num_sent: rows of all of them.
        places: [(round, start, stop)], the place of a round's rows among the incoming rows.
    """

    def __init__(self, number: int, rounds: Sequence[int], plan: HaloPlan) -> None:
        self.number, self.plan, peers = number, plan, plan.peers
        segments = merge(each for index in rounds for each in plan.rounds[index])
        offsets = np.array([each.offset for each in segments], np.int64)
        (arrive, arrived), (leave, left) = plan.arriving(segments), plan.sent(segments)
        self.incoming = peers.lanes(offsets, arrived - arrive, arrive=True)
        self.outgoing = peers.lanes(offsets, left - leave, arrive=False)
        self.num_received, self.num_sent = int(self.incoming.rows.sum()), int(self.outgoing.rows.sum())
        first = int(leave[0]) if len(leave) else 0  # they follow each other in the plan
        self._sending = plan.sending.part(first, first + self.num_sent)
        starts = (plan.starts - plan.starts[min(rounds, default=0)]).tolist()
        ends = [(index, starts[index], starts[index + 1]) for index in rounds]
        self.places = [(index, start, stop) for index, start, stop in ends if stop > start]

    @cached_property
    def packed(self) -> tuple[Lanes, slice, SendMatrix]:
        """(the outgoing lanes by sender, the rows that this rank packs among theirs, these rows)."""
        lanes, own, places = self.outgoing.by(self.outgoing.sender, self.plan.peers.rank)
        all_ = len(places) == self.num_sent
        return lanes, own, self._sending if all_ else self._sending.picked(torch.from_numpy(places))

    @cached_property
    def given(self) -> tuple[Lanes, slice, torch.Tensor]:
        """(the incoming lanes by receiver, the rows that this rank gives back among theirs, int32: their places among
        the incoming rows).
        """
        lanes, own, places = self.incoming.by(self.incoming.receiver, self.plan.peers.rank)
        return lanes, own, torch.from_numpy(places.astype(np.int32))

    @cached_property
    def returned(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(int32 (m,), the own rows that something returns for, lane after lane; int32 (m,), their places among the
        outgoing rows, None: all, in this order).
        """
        rows = self._sending.rows
        assert self._sending.sums is None, "nothing returns along a plan that sends sums"
        if self.plan.columns is None:
            return rows, None
        own = self.plan.columns.own
        place = ((rows >= own.start) & (rows < own.stop)).nonzero().squeeze(1)
        return rows[place] - own.start, place.int()


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
        self._peers, (lanes, own, self._sent) = turn.plan.peers, turn.packed
        self.back: torch.Tensor | None = None
        odd, self._widened = turn.number % 2, pieces[8]
        self.received = MessageGroup(form, turn.incoming, pieces[odd])
        self.packed = MessageGroup(form, lanes, pieces[2])
        self._to_pack = self.packed.rows.of(own)
        self.given = MessageGroup(back, turn.given[0] if back.narrow else turn.incoming, pieces[3 + odd])
        self.taken = MessageGroup(back, turn.outgoing, pieces[5 + odd])
        # Every rank of the node adds in a part of its own. The first one's is what is sent, unless it is narrowed.
        shape = len(self._peers.ranks), turn.num_received, back.width
        memory = pieces[7 if back.narrow else 3 + odd]
        self._added = memory[: shape[0] * shape[1] * shape[2] * back.dtype.itemsize].view(back.dtype).view(shape)
        self._messages: dict[bool, Callable[..., Exchange]] = {}  # by whether they return
        self._key = self._peers.rank, turn.number

    def begin(self, own: Scaled, draw: int, kind: str) -> None:
        """Pack rows (columns, F) of the plan's columns, and begin to send and receive. draw: key of the rounding."""
        if self._to_pack.narrow is not None:
            by_ids = self.wire.at_random and self._sent.sums is None
            key = draw if by_ids else kernels.stream_key(draw, *self._key)
            encode(self._to_pack, own, self._sent, key, self._ids if by_ids else None)
        elif self.packed.form.width:
            self._sent.pack(self._to_pack.wide, own)
        self._under_way = self._exchange(False, kind)

    def _exchange(self, returns: bool, kind: str) -> Exchange:
        """Begin to send and receive rows, or their returns; buffers, peers and sizes are always the same."""
        if returns not in self._messages:
            rank = self._peers.rank
            outgoing, incoming = self.packed.messages(rank, True), self.received.messages(rank, False)
            if returns:
                outgoing, incoming = self.given.messages(rank, False), self.taken.messages(rank, True)
            self._messages[returns] = self.comm.prepare(outgoing, incoming, "rows")
        under_way = self._messages[returns](kind=kind)
        under_way.progress()
        return under_way

    def finish(self) -> None:
        """Wait until `rows` are valid, and the buffer that was sent from is free."""
        self._under_way.finish()
        self._meet()

    def _meet(self) -> None:
        """Wait until all ranks of the node are here."""
        if self._peers.rows is not None:
            self._peers.meet(self.turn.number)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """(stop − start, F): some of the rows received; widened ones are valid until the next are asked for."""
        come = self.received.rows
        return come.wide[start:stop] if come.narrow is None else self.received.read(start, stop, self._widened)

    def open_returns(self) -> None:
        """Make `back` (rows received, R) of zeros, to be summed into."""
        self.back = self._added[self._peers.place].zero_()

    def begin_returns(self, draw: int, kind: str) -> None:
        """Send `back`, of all ranks of the node together, to where the rows came from, and begin to receive the
        returns for sent rows.
        """
        self._meet()  # all have added
        total, *others = self._added
        if others or self.given.form.narrow:
            _, rows, places = self.turn.given
            for other in others:
                kernels.add_rows(total, places, other, place=places, distinct=True)
            if self.given.form.narrow:
                key = kernels.stream_key(draw, *self._key)
                encode(self.given.rows.of(rows), Scaled(total), SendMatrix(places), key)
        self._returning = self._exchange(True, kind)

    def finish_returns(self, total: torch.Tensor) -> None:
        """Finish both and add the returns for own rows to total (n_p, R), in the fixed order of the plan."""
        self._returning.finish()
        self._meet()  # what came is there, whichever rank has received it
        self.taken.add(total, *self.turn.returned, self._widened)
