"""The primitive that everything hangs on: remote rows stream past the rank in a bounded buffer, turn after turn.

A stream yields Parts (edges.py). First comes the rank's own block with own rows (no message), then the block of each
round with its received rows. While one turn is computed the next is in flight. Interior rows have all their edges in
the own block. Their sums are complete at once and need no message, so they fill the time in which messages are on their
way. The sums of the other rows are complete when the last message has come.

The adjoint direction of the same transfer: with `returns`, the consumer adds to `back`, one row for each row. Each row
of `back` travels to the owner of its row and is added there.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.edges import EdgesT, Part
from hpcgnn.exchange.narrow import rounds_at_random
from hpcgnn.exchange.own_edges import OwnEdges
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import coalesce, merge
from hpcgnn.exchange.sending import Scaled
from hpcgnn.exchange.transfer import Transfer, Turn
from hpcgnn.exchange.wire import Form, Wire

# In place of a span where no tape runs.
_UNSEEN = contextlib.nullcontext()


@dataclass(frozen=True)
class Rows:
    """Own rows to stream.

    Attributes:
        x: (n_p, F), each row contiguous; without columns only returns travel.
        scale: (n_p,) factors of the rows, or None. Remote rows arrive scaled, and the yielded scale is None then.
        sent_scale: factors of sent rows in place of `scale`, or None.
        summed_scale: (columns,), of Stream.of_columns, factors of rows in the plan's sums, if they have others.
        narrow: the number of columns, from the first, that may be narrowed on the way (None: all).
        draw: key of the rounding; the same key rounds the same rows alike (None: the stream's next).
        sent: type of the rows on their way, if x is in a narrower one (None: that of x).
        pieces: whether the own block may come in pieces, each of some of its rows, between the turns.
        interior: whether interior rows come by themselves, complete; else nothing is complete before the end.
    """

    x: torch.Tensor
    scale: torch.Tensor | None = None
    sent_scale: torch.Tensor | None = None
    summed_scale: torch.Tensor | None = None
    narrow: int | None = None
    draw: int | None = None
    sent: torch.dtype | None = None
    pieces: bool = False
    interior: bool = False


@dataclass(frozen=True)
class Returns:
    """The returns for the rows. total: (n_p, R) of the rows' dtype, to which they are added. narrow: see Rows."""

    total: torch.Tensor
    narrow: int = 0


class Use(NamedTuple):
    """A use of a stream: the kind of its traffic, and the Forms of the rows and of the returns (or None)."""

    kind: str
    rows: Form
    back: Form | None


def row_sizes(form: Form, back: Form) -> tuple[int, int, int, int]:
    """Sizes for `HaloBuffers`, of rows of these Forms: (bytes of a row on its way, of its return, of the return's sum
    before narrowing, of the widened copy of either).
    """
    summed = back.width * back.dtype.itemsize if back.narrow else 0
    return form.message_bytes(1), back.message_bytes(1), summed, max(form.widened_bytes, back.widened_bytes)


class RowStream(Generic[EdgesT]):
    """Rows along one direction of the edges: those of the others of now, of a sample of these, or of an earlier epoch.

    own: the block of edges between own nodes. buffers: HaloBuffers, which have the rank's Arena.
    """

    own: EdgesT
    buffers: HaloBuffers

    def __call__(self, rows: Rows, kind: str, returns: Returns | None = None) -> Iterator[Part[EdgesT]]:
        """Yield the Parts of the own block and of the halo. Collective: exhaust it on all ranks.

        With `returns`, back is (rows, R), for the consumer to add to. kind: the ledger's name for the traffic.
        """
        raise NotImplementedError

    def of_columns(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the columns of the own block, from values of own rows (n_p,). Collective, once for the
        same values.
        """
        return values

    def empty(self, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised own rows (n_p, F) that are going to be streamed along it. rows: n_p. By all ranks alike."""
        return self.buffers.arena.empty(rows, width, dtype=dtype)


class Stream(RowStream[EdgesT]):
    """The rows of all others as they are now.

    halo: one block per round. wire: the Wire that packs rows (default: rows as they are). uses: {use: its count}.
    copies: whether own rows are copied that `empty` did not give. edges: OwnEdges.
    """

    copies = False

    def __init__(
        self,
        own: EdgesT,
        halo: Sequence[EdgesT],
        plan: HaloPlan,
        buffers: HaloBuffers,
        comm: Communicator,
        wire: Wire | None = None,
    ) -> None:
        self.own, self.halo, self.plan, self.buffers, self.comm = own, halo, plan, buffers, comm
        self.wire, self.edges = wire or Wire(), OwnEdges(own, halo)
        self.uses: Counter[Use] = Counter()
        self._turns_by_cap: dict[int, list[Turn]] = {}
        self._longest = plan.longest_round

    def __call__(self, rows: Rows, kind: str, returns: Returns | None = None) -> Iterator[Part[EdgesT]]:
        total = None if returns is None else returns.total
        form, back = self._forms(rows, returns)
        transfers = self._transfers(form, back)
        self.uses[Use(kind, form, None if returns is None else back)] += 1
        draw = self.wire.next_draw() if rows.draw is None else rows.draw
        of_own = self._open(rows, returns)
        x, scale, _ = of_own
        sent_scale = scale if rows.sent_scale is None else self.of_columns(rows.sent_scale)
        sent = Scaled(x, sent_scale, sent_scale if rows.summed_scale is None else rows.summed_scale)
        if transfers:
            transfers[0].begin(sent, draw, kind)
        own, tape = self.edges.pieces(max(1, len(transfers)) if rows.pieces else 1), self.comm.tape
        number = 0 if tape is None else tape.begin_stream()
        with _UNSEEN if tape is None else tape.span("own edges", "turn", {"kind": kind, "stream": number}):
            yield from self.edges.split(Part(own[0], *of_own), rows.interior)
        for turn, transfer in enumerate(transfers):
            about = None if tape is None else transfer.describe(kind, number, len(transfers))
            with _UNSEEN if tape is None else tape.span("turn", "turn", about):
                transfer.finish()
                if turn + 1 < len(transfers):
                    transfers[turn + 1].begin(sent, draw, kind)
                if returns is not None:
                    transfer.open_returns()
                for index, start, stop in transfer.turn.places:
                    part = None if transfer.back is None else transfer.back[start:stop]
                    come = Part(self.halo[index], transfer.rows(start, stop), None, part)
                    yield from self.edges.split(come, rows.interior)
                for piece in own[turn + 1 : turn + 2]:
                    yield from self.edges.split(Part(piece, *of_own), rows.interior)
                if total is not None:
                    if turn > 0:
                        transfers[turn - 1].finish_returns(total)
                    transfer.begin_returns(draw, kind)
        if transfers and total is not None:
            transfers[-1].finish_returns(total)
        self._close(returns)

    def empty_outer(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised sums of own rows that are not interior (edges.first_interior, width). By all ranks alike."""
        return self.buffers.arena.empty(self.edges.first_interior, width, dtype=dtype)

    def _open(
        self, rows: Rows, returns: Returns | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """(rows, scale, back) for the own block."""
        return rows.x, rows.scale, None if returns is None else returns.total

    def _close(self, returns: Returns | None) -> None:
        """All of the own block has been used."""

    def _forms(self, rows: Rows, returns: Returns | None) -> tuple[Form, Form]:
        """The Forms of the rows and of the returns."""
        width, dtype = rows.x.shape[1], rows.sent or rows.x.dtype
        form = self.wire.form(width, width if rows.narrow is None else rows.narrow, dtype)
        if returns is None:
            return form, self.wire.form(0, 0, dtype)
        return form, self.wire.form(returns.total.shape[1], returns.narrow, dtype)

    def _transfers(self, form: Form, back: Form) -> list[Transfer]:
        """One Transfer per turn: as many consecutive rounds as fit the buffers. The same ones every time."""
        if (form, back) not in self.buffers.cuts(self):
            takes = row_sizes(form, back)
            _, _, summed, widened = takes
            self.buffers.declare(*takes)
            peers = self.plan.peers
            turns = self._turns(self.buffers.cap(*takes, self._longest, peers.fewest))

            def most(values: Iterable[int]) -> int:
                return max(values, default=0)

            received = most(turn.num_received for turn in turns) * len(peers.ranks)
            sizes = [most(turn.bytes_in(form) for turn in turns)] * 2 + [most(turn.bytes_out(form) for turn in turns)]
            # What returns is added where it is given back, but where it is narrowed on its way there.
            given = [most(turn.bytes_in(back) for turn in turns) if back.narrow else received * back.row_bytes] * 2
            sizes += given + [most(turn.bytes_out(back) for turn in turns)] * 2
            lease = self.buffers.lease([*sizes, received * summed], widened * self._longest, peers)
            ids = self.of_columns(self.wire.ids) if rounds_at_random(self.wire.name) else None
            made = [Transfer(turn, lease, self.comm, self.wire, form, back, ids) for turn in turns]
            self.buffers.cuts(self)[form, back] = made
        return self.buffers.cuts(self)[form, back]

    def _turns(self, cap: int) -> list[Turn]:
        """The Turns for buffers of `cap` rows."""
        if cap not in self._turns_by_cap:
            groups = coalesce(self.plan.sizes, cap)
            self._turns_by_cap[cap] = [
                Turn(number, merge(segment for index in group for segment in self.plan.rounds[index]), group, self.plan)
                for number, group in enumerate(groups)
            ]
        return self._turns_by_cap[cap]
