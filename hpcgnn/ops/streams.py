"""The operators' view of a stream: objects called like one (see exchange/) may lack parts of a Stream."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.own_edges import OwnEdges
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.graph.blocks import Block

#: (block, rows, scale, back), as Stream.__call__ says. back is a tensor where Returns were given, and else None.
Streamed = tuple[Block, torch.Tensor, torch.Tensor | None, Any]


class RowStream(Protocol):
    """Rows of others along the edges."""

    @property
    def own(self) -> Block:
        """The edges between own nodes."""

    def __call__(
        self, rows: Rows, kind: str, returns: Returns | None = None, pieces: bool = False
    ) -> Iterator[Streamed]:
        """As Stream.__call__. Collective."""


class BufferedStream(RowStream, Protocol):
    """A RowStream over the rank's communication memory."""

    @property
    def buffers(self) -> HaloBuffers:
        """The memory, which has the rank's Arena."""


class EdgeStream(RowStream, Protocol):
    """A RowStream of now, along all edges: interior rows can be computed by themselves."""

    @property
    def edges(self) -> OwnEdges:
        """The own edges in parts."""

    @property
    def plan(self) -> HaloPlan:
        """Which rows go where."""


class ReturningStream(Protocol):
    """A stream for returns of rows: Returns are always given."""

    @property
    def own(self) -> Block:
        """The edges between own nodes."""

    def __call__(self, rows: Rows, kind: str, returns: Returns, pieces: bool = False) -> Iterator[Streamed]:
        """As Stream.__call__. Collective."""
