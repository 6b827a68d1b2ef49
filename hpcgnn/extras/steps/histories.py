"""The two streams of one layer for one share of the rows: the share's rows are fresh, all others are as they were when
they were last computed (historical embeddings: Fey et al., ICML'21).

They are called as a Stream is by the pushed operators of ops/. A rank keeps the last rows of its own nodes and of its
halo, so a row crosses once, when it is computed. Gradients of fresh rows alone go to their owners. So an epoch sends
each halo row once forwards, whatever the number of shares, and fewer backwards.

The last rows may be narrow (`schedule.history_dtype`). Kernels gather them as they are, so no copy is wide. The fresh
rows of a step are rounded, too. So a row does not depend on who reads it, nor on the number of ranks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowFormat
from hpcgnn.exchange.stream import EdgesT, Returns, RowStream, StreamInput, StreamPart

#: (a rank, int32: numbers of rows).
Numbers = tuple[int, torch.Tensor]


@dataclass(frozen=True)
class Crossing:
    """The rows of one share that cross between ranks, each pair of ranks in one order on both.

    Attributes:
        rows: int64 (b,), increasing, the own rows of the share.
        sent: the own rows that each other rank needs.
        received: the rows from each other rank, as columns: own nodes, then the halo.
        near: int64, increasing, the columns of the share, on any rank, that own rows of the share have edges from.
        own: where the own ones of these stand within the share.
        returned: the others of these, for each other rank, as numbers within `near`: their gradients go back.
        places: where gradients come home, as numbers within the share.
    """

    rows: torch.Tensor
    sent: list[Numbers]
    received: list[Numbers]
    near: torch.Tensor
    own: torch.Tensor
    returned: list[Numbers]
    places: list[Numbers]


class History:
    """The rows of one place in the model, zeros before they are known.

    columns: own nodes and halo. kind: of narrow numbers, or None for rows as they are. ids, key: original ids of own
    nodes, and the key of this epoch's rounding at random.

    Attributes:
        rows: (columns, F), in fewer bits if they are narrow.
        factors: (columns, 1) of the rows that are rounded at random, else (columns, 0).
    """

    def __init__(
        self,
        columns: int,
        kind: torch.dtype | None = None,
        ids: torch.Tensor | None = None,
        key: Callable[[], int] = int,
    ) -> None:
        self._kind, self._ids, self._key = kind, ids, key
        self.rows, self.factors = torch.zeros(columns, 0), torch.zeros(columns, int(kind == torch.int8))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, with their factors."""
        return self.rows.nbytes + self.factors.nbytes

    @property
    def scale(self) -> torch.Tensor | None:
        """(columns,) factors of the rows, or None."""
        return self.factors[:, 0] if self.factors.shape[1] else None

    def store(self, numbers: torch.Tensor, x: torch.Tensor) -> None:
        """Own rows x of these numbers (int64) are known now."""
        if self.rows.shape[1] != x.shape[1]:
            dtype = self._kind or x.dtype
            self.rows = torch.zeros(len(self.rows), x.shape[1], dtype=dtype)
        if self._kind == torch.int8:
            assert self._ids is not None, "they key the rounding"
            codes, factors = x.new_empty(x.shape, dtype=self.rows.dtype), x.new_empty(len(x), 1, dtype=torch.float32)
            kernels.narrow(codes, factors, x.contiguous(), self._ids[numbers], self._key())
            self.factors.index_copy_(0, numbers, factors)
            x = codes
        self.rows.index_copy_(0, numbers, x.to(self.rows.dtype))

    @property
    def form(self) -> RowFormat:
        """Of the rows as they travel."""
        return RowFormat(self.rows.shape[1] + self.factors.shape[1] * 4 // self.rows.itemsize, 0, self.rows.dtype)

    def packed(self, numbers: torch.Tensor) -> torch.Tensor:
        """A message with the rows of these numbers (int32), and their factors behind them."""
        out, width = self.rows.new_empty(len(numbers), self.form.width), self.rows.shape[1]
        kernels.pack(out[:, :width], self.rows, numbers)
        if self.factors.shape[1]:
            out[:, width:] = self.factors[numbers.long()].view(out.dtype)
        return out

    def take(self, numbers: torch.Tensor, message: torch.Tensor) -> None:
        """Rows of these numbers have come."""
        width, at = self.rows.shape[1], numbers.long()
        self.rows.index_copy_(0, at, message[:, :width])
        if self.factors.shape[1]:
            factors = self.factors.new_empty(len(at), 1)
            factors.view(message.dtype).copy_(message[:, width:])
            self.factors.index_copy_(0, at, factors)

    def state(self) -> dict[str, torch.Tensor]:
        """{end of a name: tensor} of what a file can have: numbers of 16 bits as whole ones."""
        rows = self.rows.view(torch.int16) if self.rows.dtype == torch.bfloat16 else self.rows
        return {"": rows} | ({" factors": self.factors} if self.factors.shape[1] else {})

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from the saved `state`."""
        rows = tensors[""]
        self.rows = rows if self._kind is None else rows.view(self._kind)
        self.factors = tensors.get(" factors", self.factors)


class HistoricalRows(RowStream[EdgesT]):
    """Fresh and historical rows along the in-edges of a share. own: an empty block; edges: all edges."""

    def __init__(
        self, history: History, crossing: Crossing, own: EdgesT, edges: EdgesT, comm: Communicator, buffers: HaloBuffers
    ) -> None:
        self.own, self.buffers, self._crossing = own, buffers, crossing
        self._history, self._edges, self._comm = history, edges, comm
        buffers.cuts(self)

    def __call__(self, rows: StreamInput, kind: str, returns: Returns | None = None) -> Iterator[StreamPart[EdgesT]]:
        x = rows.x if rows.scale is None else rows.x * rows.scale[:, None]
        history, crossing = self._history, self._crossing
        history.store(crossing.rows, x)
        come = exchanged(history.packed, history.form, crossing.sent, crossing.received, kind, self._comm)
        yield StreamPart(self.own, rows.x, rows.scale)
        for columns, arrived in come:
            history.take(columns, arrived)
        yield StreamPart(self._edges, history.rows, history.scale)


class HistoricalGradients(RowStream[EdgesT]):
    """The same rows along the transposed edges of a share. Returns must be given.

    own: an empty block; near: the edges from rows of the share, on any rank, with a row for each of Crossing.near;
    edges: all edges, once asked for. A consumer of rows gets all edges, for it may need them for gradients of its own
    rows. Others get `near`.
    """

    def __init__(
        self,
        history: History,
        crossing: Crossing,
        own: EdgesT,
        near: EdgesT,
        edges: Callable[[], EdgesT],
        comm: Communicator,
        buffers: HaloBuffers,
    ) -> None:
        self.own, self._near, self._edges, self.buffers = own, near, edges, buffers
        self._history, self._crossing, self._comm = history, crossing, comm
        buffers.cuts(self)

    def __call__(self, rows: StreamInput, kind: str, returns: Returns | None = None) -> Iterator[StreamPart[EdgesT]]:
        assert returns is not None, "gradients are what it sends"
        crossing, values, total = self._crossing, self._history.rows, returns.total
        form = RowFormat(total.shape[1], 0, total.dtype)
        yield StreamPart(self.own, rows.x, None, total)
        if rows.x.shape[1]:
            block, back = self._edges(), self.buffers.arena.empty_like(values)
            assert block.rows is not None, "it stores the columns that have edges"
            back.index_fill_(0, block.rows.long(), 0.0)
            yield StreamPart(block, values, None, back)
            back = back[crossing.near]
        else:
            back = self.buffers.arena.empty(len(crossing.near), total.shape[1], dtype=total.dtype).zero_()
            yield StreamPart(self._near, values, None, back)
        kernels.add_rows(total, crossing.own, back[: len(crossing.own)], distinct=True)

        def packed(numbers: torch.Tensor) -> torch.Tensor:
            out = back.new_empty(len(numbers), form.width)
            kernels.pack(out, back, numbers)
            return out

        for places, arrived in exchanged(packed, form, crossing.returned, crossing.places, kind, self._comm):
            kernels.add_rows(total, places, arrived, distinct=True)


def exchanged(
    packed: Callable[[torch.Tensor], torch.Tensor],
    form: RowFormat,
    sent: list[Numbers],
    received: list[Numbers],
    kind: str,
    comm: Communicator,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """[(the numbers of `received`, the rows for them)] of rows of this form. packed: makes a message. Collective."""
    incoming = [(rank, torch.empty(len(to), form.width, dtype=form.dtype)) for rank, to in received]
    outgoing = [(rank, packed(numbers)) for rank, numbers in sent]
    comm.exchange(outgoing, incoming, kind).finish()
    return [(numbers, rows) for (_, numbers), (_, rows) in zip(received, incoming, strict=True)]
