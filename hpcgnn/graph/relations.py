"""The weight of each typed edge in the mean of its relation: w_e / Σ w over the in-edges of its destination of its
type.

It does not factor into a number for each row, as other normalisations do, so that both directions keep it per edge.
Sums are those of the whole graph. Where weights sum to 0 (see `weight_sums`), the mean is 0.
"""

from collections.abc import Iterator

import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.blocks import Block, weight_sums
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.split import EdgeList


def relation_weights(
    local: LocalGraph, num_types: int, comm: Communicator, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(inward (E_p,), outward (E_p,)) of a LocalGraph that keeps its edges, in the order of their EdgeLists.
    Collective.
    """
    inward, outward, plan = _weights(local.inward), _weights(local.outward), local.outward.plan
    columns = _columns(local.outward, local.num_owned if plan.columns is None else plan.columns.num_rows)
    for kind, (rows, edges, total) in enumerate(_sums(local, inward, num_types)):
        total.masked_fill_(total == 0, torch.inf)  # a weight divided by that is 0
        halo, (own, held) = gather_halo(plan, total, comm), plan.peers.opened(plan.columns, total)
        others = torch.cat([own, halo])
        plan.peers.meet(-3)
        del held  # all have read it
        inward[edges] /= total[rows]
        edges = _of_type(local.outward, kind)
        outward[edges] /= others[columns[edges]]
    return inward.to(dtype), outward.to(dtype)


def _sums(
    local: LocalGraph, weight: torch.Tensor, num_types: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """For each type, (the rows of its in-edges int32, these edges int64, float64 (n_p,) the sums of their weights)."""
    adjacency = local.inward
    rows = torch.empty(_edges(adjacency).count, dtype=torch.int32)
    for block in (adjacency.own, *adjacency.halo):
        rows[_places(block)] = block.edge_rows
    for kind in range(num_types):
        edges = _of_type(adjacency, kind)
        total = weight_sums(rows[edges].numpy(), weight[edges].numpy(), local.num_owned)
        yield rows[edges], edges, torch.from_numpy(total)


def _of_type(adjacency: Adjacency, kind: int) -> torch.Tensor:
    """int64: the edges of a type, by their place in the EdgeList."""
    kinds = _edges(adjacency).type
    assert kinds is not None, "the graph has types"
    return torch.nonzero(kinds == kind).squeeze(1)


def _weights(adjacency: Adjacency) -> torch.Tensor:
    """float64 (E_p,), a copy."""
    edges = _edges(adjacency)
    if edges.weight is None:
        return torch.ones(edges.count, dtype=torch.float64)
    return edges.weight.to(torch.float64, copy=True)


def _edges(adjacency: Adjacency) -> EdgeList:
    assert adjacency.edges is not None, "the graph keeps its edges"
    return adjacency.edges


def _columns(adjacency: Adjacency, num_own: int) -> torch.Tensor:
    """int (E_p,): the other end of each edge; the halo counts on from the columns of the own block, num_own."""
    dtype = torch.int32 if num_own + adjacency.plan.num_halo < 2**31 else torch.int64
    columns = torch.empty(_edges(adjacency).count, dtype=dtype)
    for block in (adjacency.own, *adjacency.halo):
        columns[_places(block)] = block.indices.to(dtype) + (
            0 if block.first_column is None else num_own + block.first_column
        )
    return columns


def _places(block: Block) -> torch.Tensor:
    assert block.edge is not None, "the graph keeps its edges"
    return block.edge
