"""The loss of link prediction: binary cross-entropy over the edges and over drawn pairs, in one pass of the stream.

For every edge (i ← j) the loss wants a high score of (j, i), and low scores of (v, i) for some nodes v of a pool. Rows
of the sources j stream by as in every layer; nothing per edge outlives a tile. A loss is a single number, so its
gradient is known with it up to a factor. Both are made together, under autograd tile by tile. Gradients of others' rows
go back to them in the same pass. So a halo row costs F + F numbers in all. It would be F + F + F if messages were made
anew for the gradient (ops/propagate.py).

A pool is some nodes of the whole graph, the same on every rank. Nodes drawn for every edge by itself would need a plan
of their own in every epoch, and a row for each edge. Edges share the nodes of a pool instead. Its rows are put together
once, in a matrix whose size depends on neither the graph nor the number of ranks. Their returns are summed once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.stream import Returns, Stream, StreamInput
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.edge_tiles import EdgeTile, edge_tiles
from hpcgnn.ops.operator_context import OperatorContext
from hpcgnn.ops.operators import Operator
from hpcgnn.ops.row_tiles import add_by_row, add_by_source, edge_tile_bytes, in_rows, picked


@dataclass(frozen=True)
class NodePool:
    """ids: int64 (M,), different original ids, increasing. rows, places: int64 (m,), the own nodes among them and where
    these stand in the pool.
    """

    ids: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor

    @classmethod
    def drawn(cls, key: int, count: int, own: torch.Tensor, num_nodes: int) -> "NodePool":
        """`count` different nodes of num_nodes, all where there are no more, by draws of this key. own: int64 (n_p,),
        the original ids of own nodes.
        """
        if count >= num_nodes:
            return cls.of(torch.arange(num_nodes), own)
        found, begin = np.zeros(0, np.int64), 0
        while len(found) < count:
            words = kernels.random_words(key, torch.arange(begin, begin + count), 2).numpy()
            drawn = np.concatenate([found, (words[:, 0] << 31 | words[:, 1] >> 1) % num_nodes])
            _, firsts = np.unique(drawn, return_index=True)
            found, begin = drawn[np.sort(firsts)], begin + count
        return cls.of(torch.from_numpy(np.sort(found[:count])), own)

    @classmethod
    def of(cls, ids: torch.Tensor, own: torch.Tensor) -> "NodePool":
        """These nodes, int64 (M,), increasing. own: see `drawn`."""
        places = places_in(ids, own)
        rows = torch.nonzero(places >= 0).squeeze(1)
        return cls(ids, rows, places[rows])

    def gathered(self, x: torch.Tensor, comm: Communicator, kind: str) -> torch.Tensor:
        """The pool's rows (M, F) of all ranks' own rows x (n_p, F). Collective."""
        found = x.new_zeros(len(self.ids), x.shape[1])
        found[self.places] = x[self.rows]
        return comm.allreduce_(found, kind)


def places_in(ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """int64 (m,): where each of the wanted ids (m,) stands among `ids`, which increase, -1 where it does not."""
    places = torch.searchsorted(ids, wanted).clamp_(max=len(ids) - 1)
    return torch.where(ids[places] == wanted, places, -1)


class PairLoss:
    """The operator of a rank, over all edges but self loops. Collective.

    stream: Stream along in-edges. ids: int64 (n_p,) original ids of own nodes. halo_ids: ids of the halo, in halo
    order.
    """

    def __init__(self, stream: Stream, ids: torch.Tensor, halo_ids: torch.Tensor) -> None:
        self.stream, self.ids, self.halo_ids = stream, ids, halo_ids

    def count_pairs(self) -> int:
        """How many edges end at own nodes and are no self loops. Not collective."""
        own = sum(int(self._counts(tile).sum()) for tile in self._tiles(self.stream.own, 1 << 18))
        return own + sum(block.num_edges for block in self.stream.halo)

    def __call__(
        self, h: torch.Tensor, score: torch.nn.Module, pool: NodePool, key: int, negatives: int
    ) -> torch.Tensor:
        """The loss: a float64 scalar, differentiable in own rows h (n_p, F) and in the parameters of a scorer.

        It sums over edges of own nodes, and over `negatives` nodes of the pool for each, drawn by this key.
        """
        h = in_rows(h)
        return _PairLoss.apply(partial(self._run, score, pool, key, negatives, h), h, *score.parameters())

    def _run(
        self, score: torch.nn.Module, pool: NodePool, key: int, negatives: int, h: torch.Tensor, wanted: bool
    ) -> tuple[float, list[torch.Tensor]]:
        """(the loss, where wanted its gradients by h and the parameters of score)."""
        comm, parameters, loss = self.stream.comm, list(score.parameters()), 0.0
        rows_of_pool = pool.gathered(h, comm, "halo_forward")
        gradients = [torch.zeros_like(x) for x in (rows_of_pool, h, *parameters)] if wanted else []
        returns = Returns(gradients[1]) if wanted else None
        edges = max(1, edge_tile_bytes() // ((2 + negatives) * max(1, h.shape[1]) * h.element_size()))
        for block, rows, _, back, *_ in self.stream(StreamInput(h), "halo_forward", returns):
            for tile in self._tiles(block, edges):
                source, target = picked(rows, tile.sources), picked(h, tile.owner)
                drawn = kernels.random_words(key, tile.edge_ids, negatives).flatten() % len(rows_of_pool)
                against = rows_of_pool[drawn]
                leaves = [source, target, against]
                for leaf in leaves if wanted else ():
                    leaf.requires_grad_()
                # What a tile keeps for its gradient goes with it: nothing for a Keeper to put aside.
                with torch.set_grad_enabled(wanted), saved_tensors_hooks(lambda x: x, lambda x: x):
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
            comm.allreduce_(gradients[0], "halo_backward")
            gradients[1][pool.rows] += gradients[0][pool.places]
        return loss, gradients[1:]

    def _tiles(self, block: Block, edges: int) -> Iterator[EdgeTile]:
        first = block.first_column
        return edge_tiles(block, edges, self.ids, self.ids if first is None else self.halo_ids[first:])

    def _counts(self, tile: EdgeTile) -> torch.Tensor:
        """bool (E,): which edges are no self loops."""
        assert tile.column_ids is not None, "given to all tiles"
        return self.ids[tile.owner] != tile.column_ids[tile.sources.long()]


def _loss(
    score: torch.nn.Module, source: torch.Tensor, target: torch.Tensor, drawn: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """The sum over the edges that count. drawn: (E × k, F), edge by edge."""
    negatives = len(drawn) // max(1, len(target))
    edge, against = score(source, target), score(drawn, target.repeat_interleave(negatives, 0))
    each = F.softplus(-edge) + F.softplus(against).view(len(edge), negatives).sum(1)
    return torch.where(counts, each, 0.0).sum(dtype=torch.float64)


@dataclass(frozen=True)
class Pairs(Operator[PairLoss]):
    """The loss."""

    models = "for --task links"
    messages = False

    def exact(self, site: OperatorContext) -> PairLoss:
        return PairLoss(site.inward, site.local.original_id, site.facts.inward_ids())


class _PairLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, run: Callable[[bool], tuple[float, list[torch.Tensor]]], *leaves: torch.Tensor
    ) -> torch.Tensor:
        loss, ctx.gradients = run(any(ctx.needs_input_grad))
        return torch.tensor(loss, dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, g_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, []
        return (None, *(each.mul_(g_loss.to(each.dtype)) for each in gradients))
