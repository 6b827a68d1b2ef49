"""Linear aggregation y = R A S x by sequential aggregation, and its adjoint by the very same stream.

Forward, rank p computes its own rows  y_p = R_p Σ_q A_pq (S x)_q, one block of remote rows at a time. The gradient is
gx_p = S_p Σ_q (A_qp)^T (R gy)_q: again own rows from streamed remote rows, along the out-edges. So nothing is
refetched, no partial sums are pushed to owners, and no scatter is needed; for an undirected graph both use one
structure. (SAR, Mostafa, MLSys'22, section 3, pushes partial gradients back instead: same bytes, more memory,
scatter-adds.)

`PushedAggregation` computes gradients where the rows were used, and pushes them to their owners. The other operators
pull: the owner of a source asks for the gradients of all destinations of its edges. That needs the rows of *every*
neighbour on the other rank. If a rank has used only some rows of others (a sample), or rows of the past, its gradient
concerns those rows alone. It is summed where they were used, one row for each, and travels back in its place. So
forwards and backwards see the same edges, and the gradient belongs to the evaluated function (BNS-GCN: Wan et al.,
MLSys'22; PipeGCN: Wan et al., ICLR'22). A row that is used costs F numbers forwards and F backwards.

With a sample, which is the same in both directions, `multiply_transposed` is the adjoint of `multiply` of this epoch.
With rows of the past it is not: a convolution then keeps its aggregate (convolve.py), unless its products travel.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.exchange.stream import Returns, RowStream, Stream, StreamInput, StreamPart
from hpcgnn.graph.blocks import Block
from hpcgnn.ops.operator_context import PushContext
from hpcgnn.ops.row_tiles import in_rows, row_tiles, sum_type, tile_rows

# Columns that are read at a time where rows have to be copied.
_COLUMNS = 64


class Sums(NamedTuple):
    """An operator's result for consecutive own rows: `rows`, a slice, and their sums, or a function that makes them.
    memory: (tile, F), where that is done, or None: it is never needed; lent: whether sums stand where the caller
    writes.
    """

    rows: slice
    aggregate: kernels.Aggregate
    memory: torch.Tensor | None = None
    lent: bool = False

    def tiles(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """(rows, sums), some rows at a time; valid until the next."""
        for rows in row_tiles(self.rows.stop, self.rows.start):
            at, of = slice(rows.start - self.rows.start, rows.stop - self.rows.start), self.aggregate
            if isinstance(of, torch.Tensor):
                sums = of[at]
                if self.lent and self.memory is not None:
                    sums = self.memory[: len(sums)].copy_(sums)
            else:
                assert self.memory is not None, "sums that are made stand somewhere"
                sums = self.memory[: at.stop - at.start]
                x, indptr, indices, weight, source_scale, row_scale = of
                kernels.gather(
                    sums,
                    x,
                    indptr[at.start : at.stop + 1],
                    indices,
                    weight=weight,
                    source_scale=source_scale,
                    row_scale=None if row_scale is None else row_scale[at],
                )
            yield rows, sums


class LinearOperator:
    """y = A x of own rows, with its adjoint. Collective in both directions.

    arena: Arena for large tensors; outputs: int32 (m,), increasing, the own rows that are computed; None: all, m = n_p.
    old: whether Aᵀ gy is not the gradient of A x, for both have rows of an earlier epoch. A subclass has `multiply`,
    `multiply_transposed` and `parts`.
    """

    old = False

    def __init__(
        self, inward: RowStream[Block], outward: RowStream[Block], outputs: torch.Tensor | None = None
    ) -> None:
        self._streams, self.outputs, self.arena = (inward, outward), outputs, inward.buffers.arena

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Aggregate own rows x (n_p, F) -> (m, F), differentiably."""
        return _Aggregate.apply(x, self)

    def empty_streamed(self, rows: int, width: int, dtype: torch.dtype, transposed: bool = False) -> torch.Tensor:
        """An uninitialised tensor (rows, width) that A, or Aᵀ, is going to be applied to. By all ranks alike."""
        return self._streams[transposed].empty(rows, width, dtype)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """A x without autograd."""
        raise NotImplementedError

    def multiply_transposed(self, gy: torch.Tensor) -> torch.Tensor:
        """Aᵀ gy without autograd."""
        raise NotImplementedError

    def parts(
        self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None, by_tiles: bool = True
    ) -> Iterator[Sums]:
        """An iterator of the Sums of A x (or Aᵀ x): all own rows, some at a time. Collective: exhaust it.

        The memory that it takes is taken before it returns.

        Args:
            x: own rows.
            transposed: whether along the edges reversed.
            y: where sums of its shape and type may be kept; the caller may write to the rows that it has been given.
            by_tiles: whether sums are made some rows at a time, in `memory`.
        """
        raise NotImplementedError

    @property
    def num_outputs(self) -> int:
        """m."""
        return self._streams[0].own.num_rows

    def outputs_of(self, rows: slice) -> tuple[slice, torch.Tensor | None]:
        """(slice of the computed rows that are among own rows `rows`, a slice; where each stands there, None: at its
        place).
        """
        if self.outputs is None:
            return rows, None
        first, last = torch.searchsorted(
            self.outputs, torch.tensor([rows.start, rows.stop], dtype=torch.int32)
        ).tolist()
        return slice(first, last), self.outputs[first:last] - rows.start


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, operator: LinearOperator) -> torch.Tensor:
        ctx.operator = operator
        return operator.multiply(x)

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.operator.multiply_transposed(gy), None


def _multiply(
    block: Block,
    source: torch.Tensor,
    out: torch.Tensor,
    source_scale: torch.Tensor | None,
    row_scale: torch.Tensor | None,
    accumulate: bool,
) -> None:
    """out[row] (+)= row_scale[row] · Σ_edges weight · source_scale[column] · source[column].

    Shapes: source (columns, F), out (m, F), source_scale (columns,), row_scale (m,).
    """
    kernels.gather(
        out,
        source,
        block.indptr,
        block.indices,
        rows=block.rows,
        weight=block.weight,
        source_scale=source_scale,
        row_scale=row_scale,
        accumulate=accumulate,
    )


@dataclass(frozen=True)
class Direction:
    """One of the two: row_scale · edges · source_scale. stream: Stream; kind: of its traffic; halo_scales: the source
    scales of the halo by (stream, scale), which both directions share.
    """

    stream: Stream[Block]
    source_scale: torch.Tensor | None
    row_scale: torch.Tensor | None
    kind: str
    halo_scales: dict[tuple[int, int], torch.Tensor]

    @property
    def halo_scale(self) -> torch.Tensor:
        """The source_scale of the halo, in halo order. Collective where it is first asked for."""
        assert self.source_scale is not None, "asked for where rows are scaled"
        known = id(self.stream), id(self.source_scale)
        if known not in self.halo_scales:
            self.halo_scales[known] = gather_halo(self.stream.plan, self.source_scale, self.stream.comm)
        return self.halo_scales[known]

    def rows(self, x: torch.Tensor, sent: torch.dtype | None = None) -> StreamInput:
        """Own rows x (n_p, F) to stream. Collective. sent: see StreamInput; rows with it are scaled before.

        Rows of half precision travel unscaled. Scaling before sending would round the rows of others once more than the
        own. The curve would depend on the map then. Sums of them are scaled, and rounded once.
        """
        if self.source_scale is None or sent is not None or x.dtype == sum_type(x.dtype):
            return StreamInput(x, self.source_scale, sent=sent, pieces=True, interior=True)
        own, _ = self.stream.of_columns(self.source_scale), self.halo_scale
        return StreamInput(x, summed_scale=own, pieces=True, interior=True)

    def scales(self, part: StreamPart[Block], rows: StreamInput) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """(factors of the columns of a part of these rows, factors of its own rows)."""
        of_columns, first = part.scale, part.block.first_column
        if rows.summed_scale is not None:
            of_columns = rows.summed_scale if first is None else self.halo_scale[first : first + len(part.rows)]
        return of_columns, None if self.row_scale is None else self.row_scale[part.at]


class LinearAggregation(LinearOperator):
    """The operator R A S of a rank, in float32 for rows of bfloat16.

    Args:
        inward: Stream along in-edges.
        outward: Stream along out-edges.
        row_scale: R, (m,) or None.
        source_scale: S, (n_p,) or None.
        outputs: rows that are computed, or None for all.
        features: rows that may be in a narrower type than their sums.
    """

    def __init__(
        self,
        inward: Stream,
        outward: Stream,
        row_scale: torch.Tensor | None,
        source_scale: torch.Tensor | None,
        outputs: torch.Tensor | None = None,
        features: object = None,
    ) -> None:
        super().__init__(inward, outward, outputs)
        shared: dict = {}
        self.forward = Direction(inward, source_scale, row_scale, "halo_forward", shared)
        self.adjoint = Direction(outward, row_scale, source_scale, "halo_backward", shared)
        self._features = features

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype not in kernels.FLOATS or (x is self._features and x.dtype == torch.bfloat16):
            return self._of_features(x)
        return super().__call__(x)

    def _of_features(self, x: torch.Tensor) -> torch.Tensor:
        """R A S x, without a gradient, of features in a narrow type, which kernels widen in registers.

        The bits are those of widened rows. Rows travel as they are, but scaled rows, sums of rows, and rows that are
        narrowed on the way, in float32.
        """
        way, dtype = self.forward, sum_type(x.dtype)
        stream = way.stream
        whole = stream.plan.sending.sums is None and stream.wire.kind is None
        sent = x.dtype if whole and way.source_scale is None else dtype
        y = self.arena.empty(stream.own.num_rows, x.shape[1], dtype=dtype)
        step = _COLUMNS if stream.copies else max(1, x.shape[1])
        for first in range(0, x.shape[1], step):
            columns = slice(first, min(first + step, x.shape[1]))
            self._sum(way, x[:, columns], y[:, columns], sent)
        return y

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """R A S x without autograd."""
        return self._sum(self.forward, x)

    def multiply_transposed(self, gy: torch.Tensor) -> torch.Tensor:
        """S A^T R gy without autograd."""
        return self._sum(self.adjoint, gy)

    def _sum(
        self, way: Direction, x: torch.Tensor, y: torch.Tensor | None = None, sent: torch.dtype | None = None
    ) -> torch.Tensor:
        stream, x = way.stream, in_rows(x)
        y = self.arena.empty(stream.own.num_rows, x.shape[1], dtype=sum_type(x.dtype)) if y is None else y
        y[: stream.edges.first_interior].zero_()
        rows = way.rows(x, sent)
        for now in stream(rows, way.kind):
            scales = way.scales(now, rows)
            _multiply(now.block, now.rows, y[now.at], *scales, accumulate=not now.complete)
        return y

    def parts(
        self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None, by_tiles: bool = True
    ) -> Iterator[Sums]:
        """See LinearOperator. Interior rows come while messages are on their way, and without a sum that outlives them;
        the others come when the last message has come.
        """
        way = self.adjoint if transposed else self.forward
        own, inner, dtype = way.stream.own, way.stream.edges.first_interior, sum_type(x.dtype)
        lent = y is not None and y.shape[1] == x.shape[1] and y.dtype == dtype
        sums = y[:inner] if lent and y is not None else way.stream.empty_outer(x.shape[1], dtype)
        memory = self.arena.empty(min(tile_rows(), own.num_rows), x.shape[1], dtype=dtype) if by_tiles else None
        return self._parts(way, x.contiguous(), sums, memory, lent)

    def _parts(
        self, way: Direction, x: torch.Tensor, sums: torch.Tensor, memory: torch.Tensor | None, lent: bool
    ) -> Iterator[Sums]:
        sums.zero_()
        rows = way.rows(x)
        for now in way.stream(rows, way.kind):
            scales = way.scales(now, rows)
            if not now.complete:
                _multiply(now.block, now.rows, sums[now.at], *scales, accumulate=True)
            elif now.at.stop > now.at.start:
                own = now.block
                yield Sums(now.at, kernels.Gathering(now.rows, own.indptr, own.indices, own.weight, *scales), memory)
        if len(sums):
            yield Sums(slice(0, len(sums)), sums, memory, lent)


class PushedAggregation(LinearOperator):
    """The operator R A S, remote columns times `site.factor`. site: PushContext; row_scale (R), source_scale (S): (m,)
    and (n_p,), or None.
    """

    def __init__(self, site: PushContext, row_scale: torch.Tensor | None, source_scale: torch.Tensor | None) -> None:
        super().__init__(site.used, site.push, site.local.outputs)
        self._site, self.old, self.row_scale, self.source_scale = site, site.old, row_scale, source_scale

    def parts(
        self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None, by_tiles: bool = True
    ) -> Iterator[Sums]:
        """See LinearOperator: all rows come when the last message has come."""
        whole = self.multiply_transposed(x) if transposed else self.multiply(x)
        return iter([Sums(slice(0, len(whole)), whole)])

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        y, x = self.arena.empty(self.num_outputs, x.shape[1], dtype=x.dtype), x.contiguous()
        rows = StreamInput(x, self.source_scale, self._enlarged(self.source_scale, x))
        for block, source, scale, *_ in self._site.used(rows, "halo_forward"):
            _multiply(block, source, y, scale, self.row_scale, accumulate=block.first_column is not None)
        return y

    def multiply_transposed(self, gy: torch.Tensor) -> torch.Tensor:
        total = self.arena.empty(self._site.local.num_owned, gy.shape[1], dtype=gy.dtype)
        gy = gy.contiguous()
        remote_scale = self._enlarged(self.row_scale, gy)
        for block, _, _, back, *_ in self._site.push(
            StreamInput(gy[:, :0]), "halo_backward", Returns(total, gy.shape[1])
        ):
            assert back is not None, "Returns were given"
            remote = block.first_column is not None
            _multiply(block, gy, back, remote_scale if remote else self.row_scale, None, accumulate=remote)
        return total if self.source_scale is None else total.mul_(self.source_scale[:, None])

    def _enlarged(self, scale: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
        """A scale times the factor of remote rows."""
        factor = self._site.factor
        if factor == 1:
            return scale
        return like.new_full((len(like),), factor) if scale is None else scale * factor
