"""The weight of each typed edge in the mean of its relation: w_e / Σ w over the in-edges of its destination of its
type.

It does not factor into a number for each row, as other normalisations do, so that both directions keep it per edge.
Sums are those of the whole graph. Where weights sum to 0 (see sums.py), the mean is 0.
"""

import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.split import EdgeList
from hpcgnn.graph.sums import weight_sums


def relation_weights(
    local: LocalGraph, num_types: int, comm: Communicator, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(inward (E_p,), outward (E_p,)) of a LocalGraph that keeps its edges, in the order of their EdgeLists.
    Collective.
    """
    rows = _rows(local.inward)
    inward, in_order, in_bounds = _by_type(_edges(local.inward), num_types)
    plan = local.outward.plan
    num_own = local.num_owned if plan.columns is None else plan.columns.num_rows
    columns = _columns(local.outward, num_own)
    outward, out_order, out_bounds = _by_type(_edges(local.outward), num_types)
    for kind in range(num_types):
        edges = in_order[in_bounds[kind] : in_bounds[kind + 1]]
        total = _sums(rows[edges], inward[edges], local.num_owned)
        total.masked_fill_(total == 0, torch.inf)  # a weight divided by that is 0
        halo, (own, held) = gather_halo(plan, total, comm), plan.peers.opened(plan.columns, total)
        others = torch.cat([own, halo])
        plan.peers.meet(-3)
        del held  # all have read it
        inward[edges] /= total[rows[edges]]
        edges = out_order[out_bounds[kind] : out_bounds[kind + 1]]
        outward[edges] /= others[columns[edges]]
    return inward.to(dtype), outward.to(dtype)


def odd_relations(local: LocalGraph, num_types: int) -> torch.Tensor:
    """int64 (2,): of how many pairs of an own node and a type of its in-edges the weights sum to less than 0, and to 0.
    Local.
    """
    rows = _rows(local.inward)
    weight, order, bounds = _by_type(_edges(local.inward), num_types)
    counts = torch.zeros(2, dtype=torch.int64)
    for kind in range(num_types):
        edges = order[bounds[kind] : bounds[kind + 1]]
        total = _sums(rows[edges], weight[edges], local.num_owned)
        here = torch.zeros(local.num_owned, dtype=torch.bool)
        here[rows[edges]] = True
        counts += torch.stack([(total < 0).sum(), (here & (total == 0)).sum()])
    return counts


def _sums(rows: torch.Tensor, weight: torch.Tensor, num_rows: int) -> torch.Tensor:
    return torch.from_numpy(weight_sums(rows.numpy(), weight.numpy(), num_rows))


def _by_type(edges: EdgeList, num_types: int) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """(float64 weights (E_p,), the edges ordered by type, where each type begins)."""
    assert edges.type is not None, "the graph has types"
    weight = torch.ones(edges.count) if edges.weight is None else edges.weight
    weight = weight.to(torch.float64, copy=True)
    ordered, order = torch.sort(edges.type, stable=True)
    return weight, order, torch.searchsorted(ordered, torch.arange(num_types + 1, dtype=ordered.dtype)).tolist()


def _edges(adjacency: Adjacency) -> EdgeList:
    assert adjacency.edges is not None, "the graph keeps its edges"
    return adjacency.edges


def _rows(adjacency: Adjacency) -> torch.Tensor:
    """int32 (E_p,): the own row of each edge."""
    rows = torch.empty(_edges(adjacency).count, dtype=torch.int32)
    for block in (adjacency.own, *adjacency.halo):
        rows[_places(block)] = block.edge_rows
    return rows


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
