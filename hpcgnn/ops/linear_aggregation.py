"""Linear aggregation y = R A S x by sequential aggregation, and its adjoint by the very same stream.

Forward, rank p computes its own rows  y_p = R_p Σ_q A_pq (S x)_q, one block of remote rows at a time. The gradient is
gx_p = S_p Σ_q (A_qp)^T (R gy)_q: again own rows from streamed remote rows, along the out-edges. So nothing is
refetched, no partial sums are pushed to owners, and no scatter is needed; for an undirected graph both use one
structure. (SAR, Mostafa, MLSys'22, section 3, pushes partial gradients back instead: same bytes, more memory,
scatter-adds.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch

from hpcgnn import kernels
from hpcgnn.exchange.compact import CompactStream
from hpcgnn.exchange.plan import halo_factors
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.ops.linear_operator import LinearOperator, Part
from hpcgnn.ops.row_tiles import in_rows, sum_type, tile_rows
from hpcgnn.ops.streams import EdgeStream
from hpcgnn.ops.work import Work, work

# Columns that are read at a time where rows have to be copied.
_COLUMNS = 64


@dataclass(frozen=True)
class Direction:
    """One of the two: row_scale · edges · source_scale. stream: Stream; kind: of its traffic; halo_scales: the source
    scales of the halo by (stream, scale), which both directions share.
    """

    stream: EdgeStream
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
            # Rows are of half precision here, which the features, what a CompactStream sends, never are.
            stream = cast(Stream, self.stream)
            self.halo_scales[known] = halo_factors(stream.plan, self.source_scale, stream.comm)
        return self.halo_scales[known]

    def work(self, x: torch.Tensor, sent: torch.dtype | None = None) -> Iterator[Work]:
        """The Work (see work.py) for own rows x (n_p, F). Collective. sent: see Rows; rows with it are scaled before.

        Rows of half precision travel unscaled. Scaling before sending would round the rows of others once more than the
        own. The curve would depend on the map then. Sums of them are scaled, and rounded once.
        """
        if self.source_scale is None or sent is not None or x.dtype == sum_type(x.dtype):
            yield from work(self.stream, Rows(x, self.source_scale, sent=sent), self.kind, pieces=True)
            return
        own, halo = cast(Stream, self.stream).of_columns(self.source_scale), self.halo_scale
        for now in work(self.stream, Rows(x, summed_scale=own), self.kind, pieces=True):
            first = now.block.first_column
            yield now._replace(scale=own if first is None else halo[first : first + len(now.rows)])

    def scale_of(self, at: slice) -> torch.Tensor | None:
        """The factors of own rows `at`."""
        return None if self.row_scale is None else self.row_scale[at]


class LinearAggregation(LinearOperator):
    """The operator R A S of a rank, in float32 for rows of bfloat16.

    Args:
        inward: Stream along in-edges.
        outward: Stream along out-edges.
        row_scale: R, (m,) or None.
        source_scale: S, (n_p,) or None.
        outputs: rows that are computed, or None for all.
        constant: (x, a stream) of rows that never change and travel in a way of their own, or None.
        features: rows that may be in a narrower type than their sums.
    """

    def __init__(
        self,
        inward: Stream,
        outward: Stream,
        row_scale: torch.Tensor | None,
        source_scale: torch.Tensor | None,
        outputs: torch.Tensor | None = None,
        constant: tuple[torch.Tensor, CompactStream] | None = None,
        features: object = None,
    ) -> None:
        super().__init__(inward, outputs)
        shared: dict = {}
        self.forward = Direction(inward, source_scale, row_scale, "halo_forward", shared)
        self.adjoint = Direction(outward, row_scale, source_scale, "halo_backward", shared)
        self._constant, self._features = constant, features

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        way = self.forward
        if self._constant is not None and x is self._constant[0]:
            way = replace(way, stream=self._constant[1])
        if x.dtype not in kernels.FLOATS or (x is self._features and x.dtype == torch.bfloat16):
            return self._of_features(way, x)
        return super().__call__(x) if way is self.forward else self._sum(way, x)

    def _of_features(self, way: Direction, x: torch.Tensor) -> torch.Tensor:
        """R A S x, without a gradient, of features in a narrow type, which kernels widen in registers.

        The bits are those of widened rows. Rows travel as they are, but scaled rows, sums of rows and entries, and
        rows that are narrowed on the way, in float32.
        """
        dtype, stream = sum_type(x.dtype), cast(Stream, way.stream)
        whole = stream is self.forward.stream and stream.plan.sending.sums is None and stream.wire.kind is None
        sent = x.dtype if whole and way.source_scale is None else dtype
        y = self.arena.empty(stream.own.num_rows, x.shape[1], dtype=dtype)
        step = _COLUMNS if stream.copies else max(1, x.shape[1])
        for first in range(0, x.shape[1], step):
            columns = slice(first, min(first + step, x.shape[1]))
            self._sum(way, x[:, columns], y[:, columns], sent)
        return y

    def empty_streamed(self, rows: int, width: int, dtype: torch.dtype, transposed: bool = False) -> torch.Tensor:
        """See LinearOperator."""
        return cast(Stream, (self.adjoint if transposed else self.forward).stream).empty(rows, width, dtype)

    def multiply(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """R A S x without autograd, into `out` if it is given."""
        return self._sum(self.forward, x, out)

    def multiply_transposed(self, gy: torch.Tensor) -> torch.Tensor:
        """S A^T R gy without autograd."""
        return self._sum(self.adjoint, gy)

    def _sum(
        self, way: Direction, x: torch.Tensor, y: torch.Tensor | None = None, sent: torch.dtype | None = None
    ) -> torch.Tensor:
        stream, x = way.stream, in_rows(x)
        y = self.arena.empty(stream.own.num_rows, x.shape[1], dtype=sum_type(x.dtype)) if y is None else y
        y[: stream.edges.first_interior].zero_()
        for now in way.work(x, sent):
            now.block.multiply(now.rows, y[now.at], now.scale, way.scale_of(now.at), accumulate=not now.complete)
        return y

    def parts(self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None) -> Iterator[Part]:
        """See LinearOperator. Interior rows come while messages are on their way, and without a sum that outlives them;
        the others come when the last message has come.
        """
        way = self.adjoint if transposed else self.forward
        own, inner, dtype = way.stream.own, way.stream.edges.first_interior, sum_type(x.dtype)
        lent = y is not None and y.shape[1] == x.shape[1] and y.dtype == dtype
        sums = y[:inner] if lent and y is not None else cast(Stream, way.stream).empty_outer(x.shape[1], dtype)
        memory = self.arena.empty(min(tile_rows(), own.num_rows), x.shape[1], dtype=dtype)
        return self._parts(way, x.contiguous(), sums, memory, lent)

    def _parts(
        self, way: Direction, x: torch.Tensor, sums: torch.Tensor, memory: torch.Tensor, lent: bool
    ) -> Iterator[Part]:
        sums.zero_()
        for now in way.work(x):
            if not now.complete:
                now.block.multiply(now.rows, sums[now.at], now.scale, way.scale_of(now.at), accumulate=True)
            elif now.at.stop > now.at.start:
                own = way.stream.own.slice(now.at.start, now.at.stop)
                edges = own.indptr, own.indices, own.weight, now.scale, way.scale_of(now.at)
                yield Part(now.at, kernels.Gathering(now.rows, *edges), memory)
        if len(sums):
            yield Part(slice(0, len(sums)), sums, memory, lent)
