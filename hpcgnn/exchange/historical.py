"""The two streams of one layer for one share of the rows: the share's rows are fresh, all others are as they were when
they were last computed (historical embeddings: Fey et al., ICML'21).

They are called as a Stream is by the pushed operators of ops/. A rank keeps the last rows of its own nodes and of its
halo, so a row crosses once, when it is computed. Gradients of fresh rows alone go to their owners. So an epoch sends
each halo row once forwards, whatever the number of shares, and fewer backwards.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.edges import EdgesT, Yielded
from hpcgnn.exchange.stream import Returns, Rows, Use
from hpcgnn.exchange.wire import Form

#: (a rank, int32: numbers of rows).
Part = tuple[int, torch.Tensor]


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
    sent: list[Part]
    received: list[Part]
    near: torch.Tensor
    own: torch.Tensor
    returned: list[Part]
    places: list[Part]

    @property
    def num_halo(self) -> int:
        """Rows that are received."""
        return sum(len(columns) for _, columns in self.received)


class History:
    """The rows of one place in the model: (columns, F), zeros before they are known. columns: own nodes and halo."""

    def __init__(self, columns: int) -> None:
        self.rows = torch.zeros(columns, 0)

    def fit(self, like: torch.Tensor) -> torch.Tensor:
        """The rows, in the width and the type of these."""
        if self.rows.shape[1] != like.shape[1]:
            self.rows = like.new_zeros(len(self.rows), like.shape[1])
        return self.rows


class HistoricalRows(Generic[EdgesT]):
    """A Stream of fresh and historical rows along the in-edges of a share. own: an empty block; edges: all edges;
    plan, uses: the rows that cross, and {use: its count}.
    """

    def __init__(
        self, history: History, crossing: Crossing, own: EdgesT, edges: EdgesT, comm: Communicator, buffers: HaloBuffers
    ) -> None:
        self.own, self.buffers, self.plan = own, buffers, crossing
        self._history, self._edges, self._comm = history, edges, comm
        self.uses: Counter[Use] = Counter()
        buffers.streams.add(self)

    def __call__(
        self, rows: Rows, kind: str, returns: Returns | None = None, pieces: bool = False
    ) -> Iterator[Yielded[EdgesT]]:
        """Yield (block, rows, scale, None) as a Stream does; see there. Historical rows are scaled."""
        x = rows.x if rows.scale is None else rows.x * rows.scale[:, None]
        values = self._history.fit(x)
        values.index_copy_(0, self.plan.rows, x)
        self.uses[Use(kind, Form(x.shape[1], 0, x.dtype), None)] += 1
        come = exchanged(values, self.plan.sent, self.plan.received, kind, self._comm)
        yield self.own, rows.x, rows.scale, None
        for columns, arrived in come:
            values.index_copy_(0, columns.long(), arrived)
        yield self._edges, values, None, None


class HistoricalGradients(Generic[EdgesT]):
    """A Stream along the transposed edges of a share, with the same rows.

    own: an empty block; near: the edges from rows of the share, on any rank, with a row for each of Crossing.near;
    edges: all edges, once asked for. A consumer of rows gets all edges, for it may need them for gradients of its own
    rows. Others get `near`. plan, uses: see HistoricalRows; what crosses is the gradients.
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
        self.own, self._near, self._edges, self._arena = own, near, edges, buffers.arena
        self._history, self.plan, self._comm = history, crossing, comm
        self.uses: Counter[Use] = Counter()
        buffers.streams.add(self)

    def __call__(self, rows: Rows, kind: str, returns: Returns, pieces: bool = False) -> Iterator[Yielded[EdgesT]]:
        """Yield (transposed block, rows, None, back); afterwards `returns` has all gradients of the share's rows."""
        crossing, values, total = self.plan, self._history.rows, returns.total
        self.uses[Use(kind, Form(total.shape[1], 0, total.dtype), None)] += 1
        yield self.own, rows.x, None, total
        if rows.x.shape[1]:
            block, back = self._edges(), self._arena.empty_like(values)
            assert block.rows is not None, "it stores the columns that have edges"
            back.index_fill_(0, block.rows.long(), 0.0)
            yield block, values, None, back
            back = back[crossing.near]
        else:
            back = self._arena.empty(len(crossing.near), total.shape[1], dtype=total.dtype).zero_()
            yield self._near, values, None, back
        kernels.add_rows(total, crossing.own, back[: len(crossing.own)], distinct=True)
        for places, arrived in exchanged(back, crossing.returned, crossing.places, kind, self._comm):
            kernels.add_rows(total, places, arrived, distinct=True)


def exchanged(
    values: torch.Tensor, sent: list[Part], received: list[Part], kind: str, comm: Communicator
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """[(the numbers of `received`, the rows for them)] of rows of `values`. Collective."""
    outgoing, incoming = [], [(rank, values.new_empty(len(to), values.shape[1])) for rank, to in received]
    for rank, numbers in sent:
        outgoing.append((rank, values.new_empty(len(numbers), values.shape[1])))
        kernels.pack(outgoing[-1][1], values, numbers)
    comm.exchange(outgoing, incoming, kind).finish()
    return [(numbers, rows) for (_, numbers), (_, rows) in zip(received, incoming, strict=True)]
