"""A stream that reads rows of ranks of the same node in place; only rows of other nodes travel."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.edges import EdgesT
from hpcgnn.exchange.node_rows import NodeRows, Spread
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.stream import Returns, Rows, Stream
from hpcgnn.exchange.wire import Wire


@dataclass(frozen=True)
class Neighbours:
    """Facts that the ranks of a node share, in one direction of the edges.

    Attributes:
        columns: Spread of the streamed rows.
        returns: Spread of the returns, for own rows, and then for the rows of others that this rank reads.
        taken: [(begin of another rank's returns for own rows, among the returns of all; int32 (m,): these own rows)].
    """

    rows: NodeRows
    columns: Spread
    returns: Spread
    taken: list[tuple[int, torch.Tensor]]


class NodeStream(Stream[EdgesT]):
    """As Stream. own: the edges from rows of all ranks of the node, whose columns are rows of the node's matrix; halo,
    plan: of the other nodes'. near: Neighbours.
    """

    copies = True

    def __init__(
        self,
        own: EdgesT,
        halo: Sequence[EdgesT],
        plan: HaloPlan,
        buffers: HaloBuffers,
        comm: Communicator,
        wire: Wire | None,
        near: Neighbours,
    ) -> None:
        super().__init__(own, halo, plan, buffers, comm, wire)
        self._near = near
        self._outer: Spread | None = None
        self._wholes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of_columns(self, values: torch.Tensor) -> torch.Tensor:
        """The factors of all rows of the node; values must not change."""
        if id(values) not in self._wholes:
            self._wholes[id(values)] = values, self._near.rows.whole(self._near.columns, values)
        return self._wholes[id(values)][1]

    def empty(self, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """They are read as they are."""
        return self._near.rows.empty(self._near.columns, width, dtype)

    def empty_outer(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Nobody else reads them, but they can lie where other matrices of the node have been."""
        if self._outer is None:
            self._outer = self._near.rows.spread(self.edges.first_interior)
        return self._near.rows.empty(self._outer, width, dtype)

    def _open(
        self, rows: Rows, returns: Returns | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        near = self._near
        scale = None if rows.scale is None else self.of_columns(rows.scale)
        # Own rows that had to be copied are there until the stream has ended.
        x, self._own = near.rows.open(near.columns, rows.x)
        if returns is None:
            return x, scale, None
        total = returns.total
        self._returned = near.rows.empty(near.returns, total.shape[1], total.dtype).zero_()
        return x, scale, self._returned

    def _close(self, returns: Returns | None) -> None:
        near = self._near
        if returns is not None:
            all_returned, _ = near.rows.open(near.returns, self._returned)
            returns.total.add_(self._returned[: len(returns.total)])
            for start, rows in near.taken:
                kernels.add_rows(returns.total, rows, all_returned[start : start + len(rows)], distinct=True)
            del self._returned
        near.rows.close()
        del self._own
