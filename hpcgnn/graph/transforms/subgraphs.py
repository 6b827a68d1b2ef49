"""A rank's share of the graph as a graph of its own, in which nothing is remote: with its halo, or without.

`with_halo` takes the halo's nodes in as nodes without in-edges. Results for own nodes are as on the whole graph, as
long as the rows of the halo are at hand. Degrees stay as they were.
`induced` keeps own nodes and the edges between them, with the degrees that these make. All operators run on either as
on a graph of one rank.
"""

from dataclasses import replace

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.nodes import Peers
from hpcgnn.exchange.plan import HaloPlan, gather_halo
from hpcgnn.exchange.sending import Sending
from hpcgnn.graph.blocks import joined, own_block
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.split import EdgeList
from hpcgnn.graph.sums import weight_sums

_NONE = np.zeros(0, np.int64)
_NO_ROWS = Sending(torch.zeros(0, dtype=torch.int32))
_NO_HALO = HaloPlan(Peers.alone(0, 1), _NONE, _NONE, _NO_ROWS, [], [], np.zeros(1, np.int64), 1, None)


def with_halo(local: LocalGraph, comm: Communicator) -> LocalGraph:
    """A LocalGraph of the own nodes followed by those of the halo of the in-edges, in halo order. Collective (`plan`).

    Its structure is a second copy of the rank's in-edges, and their transpose: linear in the edges.
    """
    plan, owned = local.inward.plan, local.num_owned
    nodes = owned + plan.num_halo
    rows, columns, weight, edge = edges_of(local.inward)
    kept = local.inward.edges
    degree_in = torch.cat([local.inward.degree, local.inward.degree.new_zeros(plan.num_halo)])
    degree_out = torch.cat([local.outward.degree, gather_halo(plan, local.outward.degree, comm)])
    kinds = local.node_type
    return replace(
        local,
        inward=_adjacency(nodes, rows, columns, weight, edge, degree_in, kept),
        outward=_adjacency(nodes, columns, rows, weight, edge, degree_out, kept),
        original_id=torch.cat([local.original_id, gather_halo(plan, local.original_id, comm)]),
        node_type=None if kinds is None else torch.cat([kinds, gather_halo(plan, kinds, comm)]),
        compact=None,
    )


def induced(local: LocalGraph) -> LocalGraph:
    """The LocalGraph of the own nodes and the edges between them. Not collective. A node whose weights sum to less than
    0 there is as one without edges under symmetric normalisation.
    """
    inward = _alone(local.inward)
    outward = inward if local.outward is local.inward else _alone(local.outward)
    return replace(local, inward=inward, outward=outward, num_nodes=local.num_owned, compact=None)


def edges_of(
    adjacency: Adjacency,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(rows, columns int64 (E,), weight, place in the edge list or None) of all edges; columns of the halo count on
    from the own nodes.
    """
    blocks, owned = (adjacency.own, *adjacency.halo), adjacency.own.num_rows
    rows = torch.cat([block.edge_rows for block in blocks]).long()
    shifts = [0 if b.first_column is None else owned + b.first_column for b in blocks]
    columns = torch.cat([b.indices.long() + shift for b, shift in zip(blocks, shifts, strict=True)])
    return rows, columns, joined([b.weight for b in blocks]), joined([b.edge for b in blocks])


def _adjacency(
    nodes: int,
    rows: torch.Tensor,
    columns: torch.Tensor,
    weight: torch.Tensor | None,
    edge: torch.Tensor | None,
    degree: torch.Tensor,
    kept: EdgeList | None,
) -> Adjacency:
    order = torch.from_numpy(np.lexsort((columns.numpy(), rows.numpy())))  # equal edges stay neighbours
    sorted_columns = columns[order].to(torch.int32).numpy()
    block = own_block(
        nodes, rows[order].numpy(), sorted_columns, *(None if t is None else t[order] for t in (weight, edge))
    )
    return Adjacency(block, [], _NO_HALO, degree, kept)


def _alone(adjacency: Adjacency) -> Adjacency:
    block, kept = adjacency.own, adjacency.edges
    rows = block.edge_rows.long()
    weight = torch.ones(block.num_edges) if block.weight is None else block.weight
    degree = torch.from_numpy(weight_sums(rows.numpy(), weight.double().numpy(), len(block.indptr) - 1))
    if kept is not None:
        assert block.edge is not None, "the graph keeps its edges"
        taken = block.edge.long()
        carried = kept.weight, kept.type, kept.features
        kept = EdgeList(len(taken), *(None if t is None else t[taken] for t in carried))
        place = torch.arange(len(taken), dtype=block.edge.dtype)
        block = type(block)(block.indptr, block.indices, block.rows, block.weight, None, place)
    return Adjacency(block, [], _NO_HALO, degree, kept)
