"""The loss of link prediction: binary cross-entropy over the edges and over drawn pairs, in one pass of the stream.

For every edge (i ← j) the loss wants a high score of (j, i), and low scores of (v, i) for some nodes v of a pool. Rows
of the sources j stream by as in every layer; nothing per edge outlives a tile. A loss is a single number, so its
gradient is known with it up to a factor. Both are made together, under autograd tile by tile. Gradients of others' rows
go back to them in the same pass. So a halo row costs F + F numbers in all. It would be F + F + F if messages were made
anew for the gradient (propagate.py).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

from hpcgnn import kernels
from hpcgnn.exchange.stream import Returns, Rows, Stream
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.edge_tiles import EdgeTile, edge_tiles
from hpcgnn.ops.node_pool import NodePool
from hpcgnn.ops.row_tiles import edge_tile_bytes, in_rows
from hpcgnn.ops.tile_rows import add_by_row, add_by_source, picked

#: From rows (m, F) of sources and of targets to scores (m,).
Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class PairLoss:
    """The operator of a rank, over all edges but self loops. Collective.

    stream: Stream along in-edges. ids: int64 (n_p,) original ids of own nodes. halo_ids: ids of the halo, in halo
    order.
    """

    def __init__(self, stream: Stream, ids: torch.Tensor, halo_ids: torch.Tensor) -> None:
        self.stream, self.ids, self.halo_ids = stream, ids, halo_ids

    def count_pairs(self) -> int:
        """How many edges end at own nodes and are no self loops. Not collective."""
        blocks = (self.stream.own, *self.stream.halo)
        loops = sum(int((~self._counts(tile)).sum()) for tile in self._tiles(self.stream.own, 1 << 18))
        return sum(block.num_edges for block in blocks) - loops

    def __call__(
        self, h: torch.Tensor, score: torch.nn.Module, pool: NodePool, key: int, negatives: int
    ) -> torch.Tensor:
        """The loss: a float64 scalar, differentiable in own rows h (n_p, F) and in the parameters of score (see Score).

        It sums over edges of own nodes, and over `negatives` nodes of the pool for each, drawn by this key.
        """
        return _PairLoss.apply(self, score, pool, key, negatives, in_rows(h), *score.parameters())

    def run(
        self, score: torch.nn.Module, pool: NodePool, key: int, negatives: int, h: torch.Tensor, wanted: bool
    ) -> tuple[float, list[torch.Tensor]]:
        """(the loss, where wanted its gradients by h and the parameters of score)."""
        comm, parameters, loss = self.stream.comm, list(score.parameters()), 0.0
        rows_of_pool = pool.gathered(h, comm, "halo_forward")
        gradients = [torch.zeros_like(x) for x in (rows_of_pool, h, *parameters)] if wanted else []
        returns = Returns(gradients[1]) if wanted else None
        edges = max(1, edge_tile_bytes() // ((2 + negatives) * max(1, h.shape[1]) * h.element_size()))
        for block, rows, _, back in self.stream(Rows(h), "halo_forward", returns):
            for tile in self._tiles(block, edges):
                source, target = picked(rows, tile.sources), picked(h, tile.owner.int())
                drawn = kernels.random_words(key, tile.edge_ids, negatives).flatten() % len(rows_of_pool)
                against = rows_of_pool[drawn]
                leaves = [source, target, against]
                for leaf in leaves if wanted else ():
                    leaf.requires_grad_()
                # What a tile keeps for its gradient goes with it: nothing for offload/activations.py to put aside.
                with torch.set_grad_enabled(wanted), saved_tensors_hooks(_same, _same):
                    value = _loss(score, source, target, against, self._counts(tile))
                loss += float(value.detach())
                if back is None:  # no gradient is wanted
                    continue
                g_source, g_target, g_drawn, *others = torch.autograd.grad(value, [*leaves, *parameters])
                add_by_source(back, tile.sources, g_source)
                add_by_row(gradients[1], tile, g_target)
                gradients[0].index_add_(0, drawn, g_drawn)
                for total, each in zip(gradients[2:], others, strict=True):
                    total += each
        if wanted:
            pool.returned(gradients[0], gradients[1], comm, "halo_backward")
        return loss, gradients[1:]

    def _tiles(self, block: Block, edges: int) -> Iterator[EdgeTile]:
        first = block.first_column
        return edge_tiles(block, edges, self.ids, self.ids if first is None else self.halo_ids[first:])

    def _counts(self, tile: EdgeTile) -> torch.Tensor:
        """bool (E,): which edges are no self loops."""
        assert tile.column_ids is not None, "given to all tiles"
        return self.ids[tile.owner] != tile.column_ids[tile.sources.long()]


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _loss(
    score: Score, source: torch.Tensor, target: torch.Tensor, drawn: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """The sum over the edges that count. drawn: (E × k, F), edge by edge."""
    negatives = len(drawn) // max(1, len(target))
    edge, against = score(source, target), score(drawn, target.repeat_interleave(negatives, 0))
    each = F.softplus(-edge) + F.softplus(against).view(len(edge), negatives).sum(1)
    return torch.where(counts, each, 0.0).sum(dtype=torch.float64)


class _PairLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        operator: PairLoss,
        score: torch.nn.Module,
        pool: NodePool,
        key: int,
        negatives: int,
        h: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        loss, ctx.gradients = operator.run(score, pool, key, negatives, h, any(ctx.needs_input_grad))
        return torch.tensor(loss, dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, g_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, []
        return (None,) * 5 + tuple(each.mul_(g_loss.to(each.dtype)) for each in gradients)
