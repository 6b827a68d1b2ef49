"""The weight of each typed edge in the mean of its relation: w_e / Σ w over the in-edges of its destination of its
type.

It does not factor into a number for each row, as other normalisations do, so that both directions keep it per edge.
Sums are those of the whole graph. Where weights sum to 0 (see `weight_sums`), the mean is 0.
"""

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.blocks import weight_sums
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.split import EdgeList


def relation_weights(
    local: LocalGraph, num_types: int, comm: Communicator, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(inward (E_p,), outward (E_p,)) of a LocalGraph that keeps its edges, in the order of their EdgeLists.
    Collective.
    """
    inward, outward, plan = _weights(local.inward), _weights(local.outward), local.outward.plan
    (rows, _), (_, columns) = _ends(local.inward), _ends(local.outward)
    for kind in range(num_types):
        edges = _of_type(local.inward, kind)
        here = rows[edges]
        total = torch.from_numpy(weight_sums(here.numpy(), inward[edges].numpy(), local.num_owned))
        total.masked_fill_(total == 0, torch.inf)  # a weight divided by that is 0
        halo, (own, held) = gather_halo(plan, total, comm), plan.peers.opened(plan.columns, total)
        others = torch.cat([own, halo])
        plan.peers.meet(-3)
        del held  # all have read it
        inward[edges] /= total[here]
        edges = _of_type(local.outward, kind)
        outward[edges] /= others[columns[edges]]
    return inward.to(dtype), outward.to(dtype)


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


def _ends(adjacency: Adjacency) -> tuple[torch.Tensor, torch.Tensor]:
    """int (E_p,) each: the own row of each edge, and its column, in the order of the EdgeList."""
    rows, columns, _, places = adjacency.all_edges
    assert places is not None, "the graph keeps its edges"
    found = torch.empty_like(rows), torch.empty_like(columns)
    for new, old in zip(found, (rows, columns), strict=True):
        new[places] = old
    return found
