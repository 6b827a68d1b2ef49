"""Linear aggregation whose gradients are computed where the rows were used, and pushed to their owners.

The exact operators pull: the owner of a source asks for the gradients of all destinations of its edges. That needs the
rows of *every* neighbour on the other rank. If a rank has used only some rows of others (a sample), or rows of the
past, its gradient concerns those rows alone. It is summed here, one row for each used row, and travels back in its
place. So forwards and backwards see the same edges, and the gradient belongs to the evaluated function (BNS-GCN: Wan et
al., MLSys'22; PipeGCN: Wan et al., ICLR'22).

With a sample, which is the same in both directions, `multiply_transposed` is the adjoint of `multiply` of this epoch.
With rows of the past it is not: a convolution then keeps its aggregate (stale_convolution.py), unless its products
travel.

A row that is used costs F numbers forwards and F backwards.
"""

from collections.abc import Iterator

import torch

from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.ops.linear_operator import LinearOperator, Part
from hpcgnn.ops.site import PushedSite
from hpcgnn.ops.stale_convolution import ConvolveStale


class PushedAggregation(LinearOperator):
    """The operator R A S, remote columns times `site.factor`. site: PushedSite; row_scale (R), source_scale (S): (m,)
    and (n_p,), or None.
    """

    def __init__(self, site: PushedSite, row_scale: torch.Tensor | None, source_scale: torch.Tensor | None) -> None:
        super().__init__(site.used, site.local.outputs)
        self._site, self.row_scale, self.source_scale = site, row_scale, source_scale

    def convolution(self, d_in: int, d_out: int) -> type[torch.autograd.Function]:
        """See LinearOperator. Products travel where they are narrower, else the layer's input."""
        return ConvolveStale if self._site.old and d_out >= d_in else super().convolution(d_in, d_out)

    def parts(self, x: torch.Tensor, transposed: bool = False, y: torch.Tensor | None = None) -> Iterator[Part]:
        """See LinearOperator: all rows come when the last message has come."""
        whole = self.multiply_transposed(x) if transposed else self.multiply(x)
        return iter([Part(slice(0, len(whole)), whole)])

    def multiply(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        y = self.arena.empty(self.num_outputs, x.shape[1], dtype=x.dtype) if out is None else out
        x = x.contiguous()
        rows = Rows(x, self.source_scale, self._enlarged(self.source_scale, x))
        for block, source, scale, _ in self._site.used(rows, "halo_forward"):
            block.multiply(source, y, scale, self.row_scale, accumulate=block.first_column is not None)
        return y

    def multiply_transposed(self, gy: torch.Tensor) -> torch.Tensor:
        total = self.arena.empty(self._site.local.num_owned, gy.shape[1], dtype=gy.dtype)
        gy = gy.contiguous()
        remote_scale = self._enlarged(self.row_scale, gy)
        for block, _, _, back in self._site.push(Rows(gy[:, :0]), "halo_backward", Returns(total, gy.shape[1])):
            remote = block.first_column is not None
            block.multiply(gy, back, remote_scale if remote else self.row_scale, None, accumulate=remote)
        return total if self.source_scale is None else total.mul_(self.source_scale[:, None])

    def _enlarged(self, scale: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
        """A scale times the factor of remote rows."""
        factor = self._site.factor
        if factor == 1:
            return scale
        return like.new_full((len(like),), factor) if scale is None else scale * factor
