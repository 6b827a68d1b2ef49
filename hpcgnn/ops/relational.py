"""Relational aggregation with basis decomposition (Schlichtkrull et al., ESWC'18, eqs. 2 and 3), streamed once each
way.

    y_i = Σ_b S_ib V_b,   S_ib = Σ_e a_{r(e) b} w_e x_j      over the in-edges e = (j, i) of relation r(e)

w_e makes the mean of each relation (graph/relations.py). One aggregate per basis is summed over all rounds and
multiplied once. So neither bytes nor products depend on the number of relations, nor products on the number of ranks.
Backward, at the owner of the *source* j: rows gy_i stream by along the out-edges, T_jb = Σ_e a_{r(e) b} w_e gy_i, and
then

    gx_j = Σ_b T_jb V_bᵀ,   gV_b = Σ_j x_jᵀ T_jb,   ga_rb = Σ_{e of r} w_e <gy_i, x_j V_b>

so that nothing is fetched again, nothing goes back, and of the forward pass x alone is kept. A halo row costs d_in
numbers forwards and d_out backwards.
"""

from collections.abc import Sequence

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Stream, StreamInput
from hpcgnn.graph.edge_tiles import edge_tiles
from hpcgnn.graph.split import EdgeList
from hpcgnn.ops.operator_context import differentiable
from hpcgnn.ops.row_tiles import edge_tile_bytes

# Edges whose coefficients exist at a time in the forward pass.
TILE_EDGES = 1 << 18

#: Along in-edges or along out-edges: the stream, what the edges carry, and their weights (E_p,).
Direction = tuple[Stream, EdgeList, torch.Tensor]


class RelationalAggregation:
    """The operator of a rank. Collective in both directions.

    inward, outward: (Stream, EdgeList, weights (E_p,)) along in-edges and along out-edges. ids: int64 (n_p,).
    """

    def __init__(self, inward: Direction, outward: Direction) -> None:
        self.inward, self.outward = inward, outward

    def __call__(self, x: torch.Tensor, coefficients: torch.Tensor, bases: torch.Tensor) -> torch.Tensor:
        """y (n_p, d_out) from own rows x (n_p, d_in), coefficients a (R, B) and bases V (B, d_in, d_out),
        differentiably.
        """
        return differentiable(self, x, coefficients, bases)

    def forward(
        self, x: torch.Tensor, coefficients: torch.Tensor, bases: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """See `differentiable`."""
        sums = _sums(self.inward, x, coefficients, "halo_forward")
        y = torch.mm(sums[0], bases[0], out=self._empty(sums[0], bases.shape[2]))
        for each, basis in zip(sums[1:], bases[1:], strict=False):
            y.addmm_(each, basis)
        return y, (x, coefficients, bases)

    def backward(
        self,
        gy: torch.Tensor,
        wanted: Sequence[bool],
        x: torch.Tensor,
        coefficients: torch.Tensor,
        bases: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `differentiable`."""
        side_by_side = bases.permute(1, 0, 2).flatten(1)
        transformed = torch.mm(x, side_by_side, out=self._empty(x, side_by_side.shape[1]))  # x V_b of all bases
        g_coefficients = torch.zeros_like(coefficients)
        sums = _sums(self.outward, gy, coefficients, "halo_backward", (transformed, g_coefficients))
        gx = torch.mm(sums[0], bases[0].T, out=self._empty(sums[0], bases.shape[1]))
        for each, basis in zip(sums[1:], bases[1:], strict=False):
            gx.addmm_(each, basis.T)
        return gx, g_coefficients, torch.stack([x.T @ each for each in sums])

    def _empty(self, like: torch.Tensor, width: int) -> torch.Tensor:
        return self.inward[0].buffers.arena.empty(len(like), width, dtype=like.dtype)


def _sums(
    direction: Direction,
    x: torch.Tensor,
    coefficients: torch.Tensor,
    kind: str,
    products: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """Σ_e a_{r(e) b} w_e x over each row's edges, for each basis: B tensors (n_p, F).

    products: (u (n_p, B × F), total (R, B)): Σ_{e of r} w_e <x of e's other end, u_b of e's row> is added to total.
    """
    stream, edges, weights = direction
    arena = stream.buffers.arena
    sums = [arena.empty(*x.shape, dtype=x.dtype).zero_() for _ in range(coefficients.shape[1])]
    size = TILE_EDGES if products is None else max(1, edge_tile_bytes() // (products[0].shape[1] * x.element_size()))
    types = edges.type
    assert types is not None, "models with relations have the types of edges"
    for block, rows, *_ in stream(StreamInput(x.contiguous()), kind):
        for tile in edge_tiles(block, size, None, None):
            # Memory of the arena: tiles are large enough to be had from the system, page by page.
            edge, count = block.edge[tile.first : tile.last], tile.last - tile.first
            relation = torch.index_select(types, 0, edge, out=arena.empty(count, dtype=types.dtype))
            weight = torch.index_select(weights, 0, edge, out=arena.empty(count, dtype=x.dtype))
            coefficient = arena.empty(count, dtype=x.dtype)
            for basis, total in zip(coefficients.T, sums, strict=True):
                kernels.gather(
                    total,
                    rows,
                    tile.indptr,
                    tile.sources,
                    rows=tile.rows,
                    weight=torch.index_select(basis, 0, relation, out=coefficient).mul_(weight),
                    accumulate=True,
                )
            if products is not None:
                u, into = products
                other = arena.empty(count, rows.shape[1], dtype=x.dtype)
                torch.index_select(rows, 0, tile.sources, out=other)
                own = arena.empty(count, u.shape[1], dtype=x.dtype)
                own = torch.index_select(u, 0, tile.owner, out=own).unflatten(1, (len(sums), -1))
                into.index_add_(0, relation, (own @ other.unsqueeze(2)).squeeze(2).mul_(weight.unsqueeze(1)))
    return sums
