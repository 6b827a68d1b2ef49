"""Relational aggregation with basis decomposition (Schlichtkrull et al., ESWC'18, eqs. 2 and 3), streamed once each
way.

    y_i = Σ_b S_ib V_b,   S_ib = Σ_e a_{r(e) b} w_e x_j      over the in-edges e = (j, i) of relation r(e)

w_e makes the mean of each relation (graph/relations.py). One aggregate per basis is summed over all rounds and
multiplied once. So neither bytes nor products depend on the number of relations, nor products on the number of ranks.
Backward, at the owner of the *source* j: rows gy_i stream by along the out-edges, T_jb = Σ_e a_{r(e) b} w_e gy_i, and
then

    gx_j = Σ_b T_jb V_bᵀ,   gV_b = Σ_j x_jᵀ T_jb,   ga_rb = Σ_{e of r} w_e <gy_i, x_j V_b>

so that nothing is fetched again, nothing goes back, and of the forward pass x alone is kept. A halo row costs d_in
numbers forwards and d_out backwards. The operator adds the map of own rows, x_i W_0 + b, to the same matrix.
"""

from collections.abc import Sequence
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Stream, StreamInput
from hpcgnn.graph.split import EdgeList
from hpcgnn.ops.operator_context import differentiable
from hpcgnn.ops.product import product_in

#: Along in-edges or along out-edges: the stream, what the edges carry, and their weights (E_p,).
Direction = tuple[Stream, EdgeList, torch.Tensor]


class RelationalAggregation:
    """The operator of a rank. Collective in both directions.

    inward, outward: (Stream, EdgeList, weights (E_p,)) along in-edges and along out-edges.
    """

    def __init__(self, inward: Direction, outward: Direction) -> None:
        self.inward, self.outward, self.arena = inward, outward, inward[0].buffers.arena

    def __call__(self, x: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
        """y + x W_0 + b (n_p, d_out) from own rows x (n_p, d_in), differentiably.

        weights: coefficients a (R, B), bases V (B, d_in, d_out), W_0 (d_in, d_out), and b (d_out,) or None.
        """
        return differentiable(self, x, *weights)

    def forward(self, x: torch.Tensor, *weights: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """See `differentiable`."""
        x, (coefficients, bases, weight, bias) = x.contiguous(), weights
        y = product_in(self.arena, x, weight, bias)
        sums = _sums(self.inward, x, coefficients, "halo_forward")
        kernels.multiply(y, sums, bases.flatten(0, 1), add=True)
        return y, (x, coefficients, bases, weight)

    def backward(
        self, gy: torch.Tensor, wanted: Sequence[bool], *kept: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """See `differentiable`."""
        x, coefficients, bases, weight = kept
        gy, gx = gy.contiguous(), self.arena.empty_like(x) if wanted[0] else None
        side_by_side = bases.permute(1, 0, 2).flatten(1)
        g_bases, g_coefficients, g_weight = map(torch.zeros_like, (side_by_side, coefficients, weight))
        g_bias = torch.zeros_like(weight[0]) if wanted[4] else None
        transformed = product_in(self.arena, x, side_by_side)  # x V_b of all bases
        sums = _sums(self.outward, gy, coefficients, "halo_backward", x=transformed, g_weight=g_coefficients)
        kernels.project_backward(gx, g_weight, x, gy, weight, y_sums=g_bias)
        kernels.project_backward(gx, g_bases, x, sums, side_by_side, add=gx is not None)
        return gx, g_coefficients, g_bases.unflatten(1, (len(bases), -1)).permute(1, 0, 2), g_weight, g_bias


def _sums(
    direction: Direction, own: torch.Tensor, coefficients: torch.Tensor, kind: str, **products: torch.Tensor
) -> torch.Tensor:
    """(n_p, B F) of own rows (n_p, F): Σ_e a_{r(e) b} w_e x over each row's edges, for each basis. products: of
    `kernels.relate`, x of all own rows.
    """
    stream, edges, weights = direction
    sums = stream.buffers.arena.empty(len(own), coefficients.shape[1] * own.shape[1], dtype=own.dtype)
    sums[: stream.edges.first_interior].zero_()
    given = {"types": edges.type, "factors": weights, **products}
    for part in stream(StreamInput(own, interior=True), kind):
        block = part.block
        assert block.edge is not None, "models with relations have the places of edges"
        if "x" in products:
            given["x"] = products["x"][part.at]
        of_block = {"complete": part.complete, **block.structure}
        kernels.relate(sums[part.at], part.rows, coefficients, block.edge, **of_block, **given)
    return sums
