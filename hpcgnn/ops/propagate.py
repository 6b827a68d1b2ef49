"""Any message function by sequential aggregation and rematerialization (Mostafa, MLSys'22, section 3.2, case 2).

Forward: rows of x_src stream by. For a tile of edges at a time the message function makes messages, a reducer takes
the messages in, and they are forgotten. Backward: the rows stream by again, and each tile's messages are made anew
under autograd. The reducer gives each message its gradient. Autograd carries that gradient on: to the rows of the
sources, to x_dst, to the edges' features and to the parameters of the function. Gradients of the sources' rows go back
to the owners in the same stream.

So nothing per edge outlives a tile, and a halo row costs F numbers forwards, F + F backwards. Where the algebra allows
less (linear_aggregation.py, additive_attention.py) use those.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Returns, Stream, StreamInput, StreamPart
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.edge_tiles import EdgeTile, edge_tiles
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.draws import torch_seed
from hpcgnn.ops.operator_context import differentiable
from hpcgnn.ops.reducers import REDUCERS, Each, Message, Reducer, Several, Softmax, Sum
from hpcgnn.ops.row_functions import (
    RowFunction,
    Rows,
    add_row_gradients,
    parameters_of,
    result_of,
    tile_bytes,
)
from hpcgnn.ops.row_tiles import add_by_row, add_by_source, put_by_edge


@dataclass(frozen=True)
class Rule:
    """The functions of the edges.

    Attributes:
        message: rows (E, …) of src, and of dst and edge where given -> messages (E, F), or (logits (E, H), values
            (E, F)) for softmax. A RowKernel is for sum, mean or None.
        reduce: a name, or several; None: messages stay at the places of their edges, and are summed.
        seed: of the function's draws from torch's generator.
        key, p: dropout of softmax's coefficients.
        hands_on: whether the rows of edges are a result, too, for the next reader alone. This call's gradient of them
            is added to the reader's, in place.
    """

    message: RowFunction
    reduce: str | Sequence[str] | None
    seed: int = 0
    key: int = 0
    p: float = 0.0
    hands_on: bool = False

    def reducer(self, arena: Arena, rows: int, message: Message) -> Reducer:
        """A new reducer of messages like these, for this many rows of y. Raises ValueError."""
        names = (self.reduce,) if isinstance(self.reduce, str) else tuple(self.reduce or ())
        if names == ("softmax",):
            if not isinstance(message, tuple) or len(message) != 2 or message[1].shape[1] % message[0].shape[1]:
                raise ValueError(
                    "propagate: for reduce='softmax' the message function must return (logits (E, H), values (E, "
                    "F)) with F a multiple of H"
                )
            return Softmax(arena, rows, message, self.key, self.p)
        unknown = [name for name in names if name not in REDUCERS]
        if unknown or not names:
            raise ValueError(
                f"propagate: expected reduce to be of {', '.join(REDUCERS)}, or softmax alone, got {self.reduce!r}"
            )
        if not isinstance(message, torch.Tensor) or message.dim() != 2:
            raise ValueError(f"expected messages of shape (E, F) from the message function, got {_shape(message)}")
        reducers = [REDUCERS[name](arena, rows, message) for name in names]
        return reducers[0] if len(reducers) == 1 else Several(reducers)


def _shape(message: Any) -> tuple[int, ...] | str:
    return tuple(message.shape) if isinstance(message, torch.Tensor) else type(message).__name__


#: Whether new rows of edges replace those that they are made from.
_OVERWRITE: ContextVar[bool] = ContextVar("rows of edges are written over", default=False)


@contextlib.contextmanager
def overwriting_edges(over: bool) -> Iterator[None]:
    """Let rules without a reducer, in the body, take their `edge` as memory, if `over`: nobody else may read it, nor
    the gradients of the new rows. Without autograd, the new rows are written there. With it, they get no values: they
    are made for the gradients of what led to them.
    """
    before = _OVERWRITE.set(over)
    try:
        yield
    finally:
        _OVERWRITE.reset(before)


class Remade(NamedTuple):
    """Own rows that are not kept for the gradient: again() makes them once more, bit for bit."""

    rows: torch.Tensor
    again: Callable[[], torch.Tensor]


class Propagation:
    """The operator of a rank. Collective in both directions.

    stream: Stream along in-edges, which serves both directions. ids: int64 (n_p,) original ids of own nodes. halo_ids:
    ids of the halo, in halo order.
    """

    def __init__(self, stream: Stream, ids: torch.Tensor, halo_ids: torch.Tensor) -> None:
        self.stream, self.ids, self.halo_ids, self.arena = stream, ids, halo_ids, stream.buffers.arena
        self._source_ids = stream.of_columns(ids)

    def __call__(
        self,
        rule: Rule,
        x_src: torch.Tensor | Remade,
        x_dst: torch.Tensor | Remade | None = None,
        edge: torch.Tensor | None = None,
    ) -> Any:
        """y (n_p, F) from own rows x_src (n_p, F_s), x_dst (n_p, F_d) or None, edge (E_p, F_e) or None, differentiably.
        Of a rule without a reducer: (the messages (E_p, F), y). Of one that hands edges on: (edge, y).
        """
        again = [x.again if isinstance(x, Remade) else None for x in (x_src, x_dst)]
        rows = [x.rows if isinstance(x, Remade) else x for x in (x_src, x_dst)]
        inputs = [None if x is None else x.contiguous() for x in (*rows, edge)]
        example: Any  # whether it is a Message, the reducer says
        example, parameters = parameters_of(rule.message, [x for x in inputs if x is not None])
        over = rule.reduce is None and _OVERWRITE.get()
        if rule.reduce:
            reducer = rule.reducer(self.arena, self.stream.own.num_rows, example)
        else:
            reducer = self._each(self.stream.own.num_rows, example, inputs[2], over)
        return differentiable(Call(self, rule, reducer, over=over, again=again), *inputs, *parameters)

    def _each(self, rows: int, example: Any, edge: torch.Tensor | None, over: bool) -> Each:
        if not isinstance(example, torch.Tensor) or example.dim() != 2:
            raise ValueError(f"expected new rows of shape (E, F) from the function, got {_shape(example)}")
        assert edge is not None, "there is a row for each edge"
        unread = over and torch.is_grad_enabled()
        if unread:
            each = example.new_empty(1, example.shape[1]).expand(len(edge), -1)
        else:
            in_place = over and edge.shape[1:] == example.shape[1:] and edge.dtype == example.dtype
            each = edge if in_place else self.arena.empty(len(edge), example.shape[1], dtype=example.dtype)
        return Each(self.arena, rows, example, each, unread)

    def seed(self, rule: Rule) -> int:
        """Of a rule's draws on this rank: ranks must not draw the same numbers."""
        return kernels.stream_key(rule.seed, self.stream.comm.rank)

    def column_ids(self, block: Block, columns: int) -> torch.Tensor:
        """The original ids of a block's columns, so many."""
        first = block.first_column
        return self._source_ids if first is None else self.halo_ids[first : first + columns]


@dataclass(frozen=True)
class Call:
    """A call of the operator, with the reducer that makes y.

    over: see `overwriting_edges`. again: of the rows of sources and of destinations, where they are not kept.
    """

    operator: Propagation
    rule: Rule
    reducer: Reducer
    over: bool = field(default=False, kw_only=True)
    again: Sequence[Callable[[], torch.Tensor] | None] = field(default=(None, None), kw_only=True)

    def forward(self, x_src: torch.Tensor, *others: torch.Tensor | None) -> tuple[Any, tuple[torch.Tensor | None, ...]]:
        """See `differentiable`. Kept are y where the reducer reads it, the inputs and the parameters."""
        inputs, seed = (x_src, *others[:2]), self.operator.seed(self.rule)
        with torch_seed(seed):
            for part in self.operator.stream(StreamInput(x_src, draw=seed), "halo_forward"):
                for tile in self._tiles(part, inputs):
                    self.reducer.add(tile, self.message(tile, part, (*inputs, *others[2:])))
        y = self.reducer.finish()
        ends = (x if made is None else None for x, made in zip(inputs, self.again, strict=False))
        kept = y if self.reducer.reads_y else None, *ends, *others[1:]
        return ((others[1], y) if self.rule.hands_on else y), kept

    def message(self, tile: EdgeTile, part: StreamPart[Block], tensors: Sequence[torch.Tensor | None]) -> Any:
        """Of a tile's edges. tensors: x_src, x_dst, edge, the parameters."""
        parameters = [x for x in tensors[3:] if x is not None]
        return result_of(self.rule.message, _take(tile, part, *tensors[:3]), parameters)

    def backward(
        self, gy: Any, wanted: Sequence[bool], y: Any, *tensors: torch.Tensor | None
    ) -> list[torch.Tensor | None]:
        """See `differentiable`."""
        ends = (x if made is None else made() for x, made in zip(tensors, self.again, strict=False))
        tensors = (*ends, *tensors[2:])
        gy = tuple(g if g is None else g.contiguous() for g in gy) if isinstance(gy, tuple) else gy.contiguous()
        # The gradient of the new rows of edges becomes that of the rows before, tile by tile.
        over = gy[0] if self.over or self.rule.hands_on else None
        if self.rule.hands_on:
            gy = gy[1]
        arena = self.operator.arena
        sums = [
            None if not w or x is None else arena.empty_like(x).zero_() if over is None or number != 2 else over
            for number, (x, w) in enumerate(zip(tensors, wanted, strict=True))
        ]
        g_src, x_src, seed = sums[0], tensors[0], self.operator.seed(self.rule)
        assert x_src is not None, "the sources always have rows"
        # The kept y knows of this node, and the node of the reducer: if that held it, none of them would ever go.
        if y is not None:
            y = y.detach()
        self.reducer.prepare(gy, y)
        returns = None if g_src is None else Returns(g_src)
        with torch_seed(seed):
            for part in self.operator.stream(StreamInput(x_src, draw=seed), "halo_backward", returns):
                for tile in self._tiles(part, tensors[:3]):
                    self.add_gradients(tile, part, tensors, sums)
        for name in ("gy", "of_each"):  # autograd copies a gradient that somebody else holds
            vars(self.reducer).pop(name, None)
        return sums

    def add_gradients(
        self,
        tile: EdgeTile,
        part: StreamPart[Block],
        tensors: Sequence[torch.Tensor | None],
        sums: Sequence[torch.Tensor | None],
    ) -> None:
        """Add a tile's gradients to `back` and to sums. In a method, so that no tensor of a tile outlives it: the next
        one would double the memory.
        """
        _, g_dst, g_edge, *_ = sums
        given = [x is not None for x in tensors]

        def gradient(message: Any) -> Any:
            if message is not None:
                return self.reducer.gradient(tile, message)
            assert isinstance(self.reducer, Sum), "a RowKernel's messages are not made again"
            return self.reducer.rows_of_gradient(tile)

        found = iter(
            add_row_gradients(
                self.rule.message,
                _take(tile, part, *tensors[:3]),
                [x for x in tensors[3:] if x is not None],
                [total for total, there in zip(sums, given, strict=True) if there],
                gradient,
            )
        )
        if part.back is not None:  # as the sum for x_src is
            returns = part.block.returns
            to = tile.sources if returns is None else returns[tile.first : tile.last]
            add_by_source(part.back, to, next(found))
        if g_dst is not None:
            add_by_row(g_dst, tile, next(found))
        if g_edge is not None:
            put_by_edge(g_edge, tile, next(found), add=self.rule.hands_on)

    def _tiles(self, part: StreamPart[Block], inputs: Sequence[torch.Tensor | None]) -> Iterator[EdgeTile]:
        width = sum(x.shape[1] for x in inputs if x is not None)
        edges = max(1, tile_bytes(self.rule.message) // (width * part.rows.element_size()))
        operator = self.operator
        return edge_tiles(part.block, edges, operator.ids, operator.column_ids(part.block, len(part.rows)))


def _take(
    tile: EdgeTile,
    part: StreamPart[Block],
    x_src: torch.Tensor | None,
    x_dst: torch.Tensor | None,
    edge: torch.Tensor | None,
) -> list[Rows]:
    """The rows of a tile's edges: of the sources, and of destinations and edges where there are such."""
    taken: list[Rows] = [(part.rows, tile.sources)]
    if x_dst is not None:
        taken.append((x_dst, tile.owner))
    if edge is not None:
        taken.append((edge[tile.at], None))
    return taken
