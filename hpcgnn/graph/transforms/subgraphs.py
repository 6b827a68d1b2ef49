"""Subgraphs of a rank's share: its nodes and their halo, its own nodes alone, or the training nodes of all ranks.

`with_halo` takes the halo's nodes in as nodes without in-edges. Results for own nodes are as on the whole graph, as
long as the rows of the halo are at hand. Degrees stay as they were.
`induced` keeps own nodes and the edges between them, with the degrees that these make. All operators run on either as
on a graph of one rank.
`training_subgraph` (`--inductive`) keeps the training nodes and the edges between them, over all ranks. Nothing of
validation and test nodes is there: neither features nor edges nor, in a batch norm, statistics. The edges between
training nodes alone make the degrees. It is filtered from the rank's one structure, as pruned layers' shares are, and
has a halo of its own.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.peers import Peers
from hpcgnn.exchange.plan import HaloPlan, gather_halo
from hpcgnn.exchange.send_matrix import SendMatrix
from hpcgnn.graph.blocks import EdgeArrays, own_block, weight_sums
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graph.split import EdgeList
from hpcgnn.graph.transforms.pruning import filtered, numbers
from hpcgnn.graphfile.ranges import permuted_rows
from hpcgnn.memory.stored_rows import StoredRows

_NONE = np.zeros(0, np.int64)
_NO_ROWS = SendMatrix(torch.zeros(0, dtype=torch.int32))
_NO_HALO = HaloPlan(Peers.alone(0, 1), _NONE, _NONE, _NO_ROWS, [], [], np.zeros(1, np.int64), 1, None)


def with_halo(local: LocalGraph, comm: Communicator) -> LocalGraph:
    """A LocalGraph of the own nodes followed by those of the halo of the in-edges, in halo order. Collective (`plan`).

    Its structure is a second copy of the rank's in-edges, and their transpose: linear in the edges.
    """
    plan, owned = local.inward.plan, local.num_owned
    nodes = owned + plan.num_halo
    edges, kept = local.inward.all_edges, local.inward.edges
    turned = edges._replace(rows=edges.columns, columns=edges.rows)
    degree_in = torch.cat([local.inward.degree, local.inward.degree.new_zeros(plan.num_halo)])
    degree_out = torch.cat([local.outward.degree, gather_halo(plan, local.outward.degree, comm)])
    kinds = local.node_type
    return replace(
        local,
        inward=_adjacency(nodes, edges, degree_in, kept),
        outward=_adjacency(nodes, turned, degree_out, kept),
        original_id=torch.cat([local.original_id, gather_halo(plan, local.original_id, comm)]),
        node_type=None if kinds is None else torch.cat([kinds, gather_halo(plan, kinds, comm)]),
    )


def induced(local: LocalGraph) -> LocalGraph:
    """The LocalGraph of the own nodes and the edges between them. Not collective. A node whose weights sum to less than
    0 there is as one without edges under symmetric normalisation.
    """

    def alone(adjacency: Adjacency) -> Adjacency:
        return _by_itself(replace(adjacency, halo=[], plan=_NO_HALO, counted=None, row_counts=None))

    return replace(_both(local, alone), num_nodes=local.num_owned)


def training_subgraph(local: LocalGraph, comm: Communicator) -> LocalGraph:
    """The LocalGraph of the own training nodes that have a label. local: one that sends rows. Collective.

    It takes memory for its edges and for the features of its nodes, which are copies.
    """
    assert not isinstance(local.features, StoredRows), "they stay in memory where training sees a part of the graph"
    nodes = local.mask("train")
    number = numbers(nodes)
    return replace(
        _both(local, lambda adjacency: _by_itself(filtered(adjacency, nodes, nodes, number, number, comm))),
        features=rows_of(local.features, nodes),
        labels=local.labels[nodes],
        split=local.split[nodes],
        original_id=local.original_id[nodes],
        num_nodes=int(comm.total(nodes.sum().view(1), "plan")),
        node_type=None if local.node_type is None else local.node_type[nodes],
    )


def rows_of(features: torch.Tensor | SparseRows, nodes: torch.Tensor) -> torch.Tensor | SparseRows:
    """The rows of some nodes, bool (n_p,)."""
    if isinstance(features, torch.Tensor):
        return features[nodes]
    indptr, entries = permuted_rows(features.indptr.numpy(), np.flatnonzero(nodes.numpy()))
    columns, data = features.indices.numpy()[entries], features.data.numpy()[entries]
    return sparse_rows(indptr, columns, data, features.num_columns, features.data.dtype)


def _both(local: LocalGraph, made: Callable[[Adjacency], Adjacency]) -> LocalGraph:
    """The LocalGraph with new directions."""
    inward = made(local.inward)
    outward = inward if local.outward is local.inward else made(local.outward)
    return replace(local, inward=inward, outward=outward)


def _by_itself(adjacency: Adjacency) -> Adjacency:
    """The same, with the degrees that its edges make, and with a list of these alone where it has one."""
    (rows, _, weight, places), kept = adjacency.all_edges, adjacency.edges
    degree = weight_sums(rows.numpy(), None if weight is None else weight.numpy(), adjacency.own.num_rows)
    adjacency = replace(adjacency, degree=torch.from_numpy(degree))
    if kept is None or places is None:
        return adjacency
    taken, inverse = places.long().unique(return_inverse=True)
    blocks = adjacency.own, *adjacency.halo
    numbered = inverse.to(places.dtype).split([block.num_edges for block in blocks])
    own, *halo = (replace(block, edge=each) for block, each in zip(blocks, numbered, strict=True))
    carried = kept.weight, kept.type, kept.features
    edges = EdgeList(len(taken), *(None if each is None else each[taken] for each in carried))
    return replace(adjacency, own=own, halo=halo, edges=edges)


def _adjacency(nodes: int, edges: EdgeArrays, degree: torch.Tensor, kept: EdgeList | None) -> Adjacency:
    order = np.lexsort((edges.columns.numpy(), edges.rows.numpy()))  # equal edges stay neighbours
    rows, columns, weight, places = edges.taken(torch.from_numpy(order))
    block = own_block(nodes, rows.numpy(), columns.int().numpy(), weight, places)
    return Adjacency(block, [], _NO_HALO, degree, kept)
