"""The primitive that everything hangs on: remote rows stream past the rank in a bounded buffer, turn after turn.

A stream yields StreamParts. First comes the rank's own block with own rows (no message), then the block of each
round with its received rows. While one turn is computed the next is in flight. Interior rows have all their edges in
the own block. Their sums are complete at once and need no message, so they fill the time in which messages are on their
way. The sums of the other rows are complete when the last message has come. A consumer that only adds may take the own
block in pieces, one before each turn arrives: a share of the computing hides every message (docs/performance.md).

The adjoint direction of the same transfer: with `returns`, the consumer adds to `back`, one row for each row. Each row
of `back` travels to the owner of its row and is added there.

If the plan has neighbours (`near`), the rows of this node's ranks are read in place, and the own block has the edges
from all of them. Only rows of other nodes travel.
"""

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.nodes import NodeLayout
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import coalesce
from hpcgnn.exchange.row_codec import RowCodec, RowFormat
from hpcgnn.exchange.send_matrix import Scaled
from hpcgnn.exchange.transfer import Transfer, Turn

#: Where no trace is made.
_NO_SPAN = contextlib.nullcontext()
#: A block of edges between own rows and the columns of one source buffer (graph/blocks.py). The blocks of one stream
#: are all of one type.
EdgesT = TypeVar("EdgesT", bound=Any)


class StreamPart(NamedTuple, Generic[EdgesT]):
    """Edges that can be computed now: what a stream yields. Its rows are valid only until the next.

    Attributes:
        block: the edges; its rows are numbered within the own rows `at`.
        rows: (columns, F), the rows of its columns.
        scale: (columns,) their factors, or None.
        back: (columns, R), to which returns to the rows are added, or None.
        at: a slice of own rows.
        complete: whether the block has all edges of these rows.
    """

    block: EdgesT
    rows: torch.Tensor
    scale: torch.Tensor | None = None
    back: torch.Tensor | None = None
    at: slice = slice(None)
    complete: bool = False


class OwnEdges(Generic[EdgesT]):
    """block: the block of edges between own rows. halo: blocks of the rounds. Results are kept for the next call."""

    def __init__(self, block: EdgesT, halo: Sequence[EdgesT]) -> None:
        self.block = block
        #: The first of the own rows behind all that have an edge from another rank: nothing is added to those any more.
        self.first_interior = max((each.span[1] for each in halo), default=0)
        self._pieces: dict[int, list[EdgesT]] = {}
        self._parts: dict[int, list[tuple[EdgesT, slice, bool]]] = {}

    def pieces(self, number: int) -> list[EdgesT]:
        """The own block in `number` pieces of consecutive rows, with about equal numbers of edges."""
        if number == 1:
            return [self.block]
        if number not in self._pieces:
            indptr = self.block.indptr
            ends = torch.linspace(int(indptr[0]), int(indptr[-1]), number + 1, dtype=torch.float64)
            bounds = torch.searchsorted(indptr, ends.long()).tolist()
            bounds[0], bounds[-1] = 0, len(indptr) - 1
            rows = torch.arange(len(indptr) - 1, dtype=torch.int32) if self.block.rows is None else self.block.rows
            self._pieces[number] = [
                self.block.of_rows(indptr[first : last + 1], rows[first:last])
                for first, last in itertools.pairwise(bounds)
            ]
        return self._pieces[number]

    def split(self, part: StreamPart[EdgesT], interior: bool) -> list[StreamPart[EdgesT]]:
        """The parts of a part: of the own block, of a piece of it, or of a round.

        interior: whether interior rows are by themselves.
        """
        block, inner = part.block, self.first_interior
        if not interior:
            return [part]
        if block.first_column is not None:
            return [part._replace(at=slice(0, inner))]
        if id(block) not in self._parts:
            first, last = block.span
            cuts = [(first, min(last, inner), False), (max(first, inner), last, True)]
            self._parts[id(block)] = [
                (self.block.slice(start, stop), slice(start, stop), complete)
                for start, stop, complete in cuts
                if start < stop
            ]
        return [part._replace(block=each, at=at, complete=all_) for each, at, all_ in self._parts[id(block)]]


@dataclass(frozen=True)
class StreamInput:
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
    """The returns for the rows. total: (n_p, R) of the rows' dtype, to which they are added. narrow: see
    StreamInput.
    """

    total: torch.Tensor
    narrow: int = 0


class Use(NamedTuple):
    """A use of a stream: the kind of its traffic, and the Forms of the rows and of the returns (or None)."""

    kind: str
    rows: RowFormat
    back: RowFormat | None


def row_sizes(form: RowFormat, back: RowFormat) -> tuple[int, int, int, int]:
    """Sizes for `HaloBuffers`, of rows of these Forms: (bytes of a row on its way, of its return, of the return's sum
    before narrowing, of the widened copy of either).
    """
    summed = back.width * back.dtype.itemsize if back.narrow else 0
    return form.row_bytes, back.row_bytes, summed, max(form.widened_bytes, back.widened_bytes)


class RowStream(Generic[EdgesT]):
    """Rows along one direction of the edges: those of the others of now, of a sample of these, or of an earlier epoch.

    own: the block of edges between own nodes. buffers: HaloBuffers, which have the rank's Arena.
    """

    own: EdgesT
    buffers: HaloBuffers

    def __call__(self, rows: StreamInput, kind: str, returns: Returns | None = None) -> Iterator[StreamPart[EdgesT]]:
        """Yield the Parts of the own block and of the halo. Collective: exhaust it on all ranks.

        With `returns`, back is (rows, R), for the consumer to add to. kind: the ledger's name for the traffic.
        """
        raise NotImplementedError

    def of_columns(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the columns of the own block, from values of own rows (n_p,). Collective, once for the
        same values, which must not change.
        """
        return values

    def empty(self, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised own rows (n_p, F) that are going to be streamed along it. rows: n_p. By all ranks alike."""
        return self.buffers.arena.empty(rows, width, dtype=dtype)


class Stream(RowStream[EdgesT]):
    """The rows of all others as they are now.

    Args:
        own: the edges from own rows, or from those of all ranks of the node.
        halo: one block per round.
        plan: HaloPlan.
        wire: the RowCodec that packs rows (default: rows as they are).

    Attributes:
        uses: {use: its count}.
        edges: OwnEdges.
    """

    def __init__(
        self,
        own: EdgesT,
        halo: Sequence[EdgesT],
        plan: HaloPlan,
        buffers: HaloBuffers,
        comm: Communicator,
        wire: RowCodec | None = None,
    ) -> None:
        self.own, self.halo, self.plan, self.buffers, self.comm = own, halo, plan, buffers, comm
        self.wire, self.edges, self._cuts = wire or RowCodec(), OwnEdges(own, halo), buffers.cuts(self)
        self.uses: Counter[Use] = Counter()
        self._form = functools.cache(self.wire.form)
        self._turns_by_cap: dict[int, list[Turn]] = {}
        self._outer: NodeLayout | None = None
        self._of_columns: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def copies(self) -> bool:
        """Whether own rows are copied that `empty` did not give."""
        return self.plan.near is not None

    def __call__(self, rows: StreamInput, kind: str, returns: Returns | None = None) -> Iterator[StreamPart[EdgesT]]:
        """See RowStream."""
        total, near = None if returns is None else returns.total, self.plan.near
        transfers = self._transfers(rows, kind, returns)
        draw = rows.draw
        if draw is None:
            draw = self.wire.next_draw() if self.wire.at_random else 0
        scale = None if rows.scale is None else self.of_columns(rows.scale)
        x, held = (rows.x, rows.x) if near is None else near.rows.open(near.columns, rows.x, kind)
        back = total if near is None or total is None else near.empty_returns(total)
        of_own = x, scale, back
        sent_scale = scale if rows.sent_scale is None else self.of_columns(rows.sent_scale)
        sent = Scaled(x, sent_scale, sent_scale if rows.summed_scale is None else rows.summed_scale)
        if transfers:
            transfers[0].begin(sent, draw, kind)
        own = self.edges.pieces(max(1, len(transfers)) if rows.pieces else 1)
        tape = self.comm.tape
        with _NO_SPAN if tape is None else tape.span("own edges", "turn", {"kind": kind}):
            yield from self.edges.split(StreamPart(own[0], *of_own), rows.interior)
        for number, transfer in enumerate(transfers):
            about = {"kind": kind, "turn": f"{number + 1} of {len(transfers)}"}
            with _NO_SPAN if tape is None else tape.span("turn", "turn", about):
                transfer.finish()
                if number + 1 < len(transfers):
                    transfers[number + 1].begin(sent, draw, kind)
                if total is not None:
                    transfer.open_returns()
                for index, start, stop in transfer.places:
                    part = None if transfer.back is None else transfer.back[start:stop]
                    come = StreamPart(self.halo[index], transfer.rows(start, stop), None, part)
                    yield from self.edges.split(come, rows.interior)
                for piece in own[number + 1 : number + 2]:
                    yield from self.edges.split(StreamPart(piece, *of_own), rows.interior)
                if total is not None:
                    if number > 0:
                        transfers[number - 1].finish_returns(total)
                    transfer.begin_returns(draw, kind)
        if transfers and total is not None:
            transfers[-1].finish_returns(total)
        if near is not None:
            if total is not None and back is not None:
                near.add_returns(total, back)
            near.rows.close(kind)
        del held  # others have read it

    def of_columns(self, values: torch.Tensor) -> torch.Tensor:
        """See RowStream."""
        near = self.plan.near
        if near is None:
            return values
        if id(values) not in self._of_columns:
            self._of_columns[id(values)] = values, near.rows.whole(near.columns, values)
        return self._of_columns[id(values)][1]

    def empty(self, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """See RowStream. Others of the node read them as they are."""
        near = self.plan.near
        if near is None:
            return self.buffers.arena.empty(rows, width, dtype=dtype)
        return near.rows.empty(near.columns, width, dtype)

    def empty_outer(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised sums of own rows that are not interior (edges.first_interior, width). By all ranks alike.

        Nobody else reads them, but they can lie where other matrices of the node have been.
        """
        near = self.plan.near
        if near is None:
            return self.buffers.arena.empty(self.edges.first_interior, width, dtype=dtype)
        if self._outer is None:
            self._outer = near.rows.spread(self.edges.first_interior)
        return near.rows.empty(self._outer, width, dtype)

    def _transfers(self, rows: StreamInput, kind: str, returns: Returns | None) -> Sequence[Transfer]:
        """One for each turn, and the use is counted."""
        width, dtype = rows.x.shape[1], rows.sent or rows.x.dtype
        form = self._form(width, width if rows.narrow is None else rows.narrow, dtype)
        back = RowFormat(0, 0, dtype)
        if returns is not None:
            back = self._form(returns.total.shape[1], returns.narrow, dtype)
        if (form, back) not in self._cuts:
            self._cuts[form, back] = self._cut(form, back)
        self.uses[Use(kind, form, None if returns is None else back)] += 1
        return self._cuts[form, back]

    def _cut(self, form: RowFormat, back: RowFormat) -> list[Transfer]:
        """As many consecutive rounds as fit the buffers are a turn."""
        takes, peers, longest = row_sizes(form, back), self.plan.peers, self.plan.longest_round
        _, _, summed, widened = takes
        self.buffers.declare(*takes)
        turns = self._turns(self.buffers.cap(*takes, longest, peers.fewest))

        received = max((turn.num_received for turn in turns), default=0)
        sent = max((turn.num_sent for turn in turns), default=0)
        come, gone, taken = received * form.row_bytes, sent * form.row_bytes, sent * back.row_bytes
        # What returns is added where it is given back, but where it is narrowed on its way there.
        given = received * back.row_bytes * (1 if back.narrow else len(peers.ranks))
        sizes = [come, come, gone, given, given, taken, taken, received * len(peers.ranks) * summed]
        pieces = self.buffers.pieces(sizes, widened * longest, peers)
        ids = self.of_columns(self.wire.ids) if self.wire.at_random else None
        return [Transfer(turn, pieces, self.comm, self.wire, form, back, ids) for turn in turns]

    def _turns(self, cap: int) -> list[Turn]:
        """The Turns for buffers of `cap` rows."""
        if cap not in self._turns_by_cap:
            groups = coalesce(self.plan.sizes, cap)
            self._turns_by_cap[cap] = [Turn(number, group, self.plan) for number, group in enumerate(groups)]
        return self._turns_by_cap[cap]
