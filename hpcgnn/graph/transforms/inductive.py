"""The subgraph of the training nodes (`--inductive`): these nodes alone, and the edges between them, over all ranks.

Nothing of validation and test nodes is there: neither features nor edges nor, in a batch norm, statistics. Degrees are
those that the edges between training nodes make. It is filtered from the rank's one structure, as pruned layers' shares
are, and has a halo of its own.
"""

from dataclasses import replace

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graph.split import EdgeList
from hpcgnn.graph.sums import ROUNDING
from hpcgnn.graph.transforms.filtering import filtered, numbers
from hpcgnn.memory.stored import StoredRows


def training_subgraph(local: LocalGraph, comm: Communicator) -> LocalGraph:
    """The LocalGraph of the own training nodes that have a label. local: one that sends rows. Collective.

    It takes memory for its edges and for the features of its nodes, beside those of the whole graph.
    """
    assert not isinstance(local.features, StoredRows), "they stay in memory where training sees a part of the graph"
    nodes = local.mask("train")
    number = numbers(nodes)
    inward = _induced(local.inward, nodes, number, comm)
    outward = inward if local.outward is local.inward else _induced(local.outward, nodes, number, comm)
    return replace(
        local,
        inward=inward,
        outward=outward,
        features=rows_of(local.features, nodes),
        labels=local.labels[nodes],
        split=local.split[nodes],
        original_id=local.original_id[nodes],
        num_nodes=int(comm.total(nodes.sum().view(1), "plan")),
        node_type=None if local.node_type is None else local.node_type[nodes],
        compact=None,
    )


def _induced(adjacency: Adjacency, nodes: torch.Tensor, number: torch.Tensor, comm: Communicator) -> Adjacency:
    found = _own_list(filtered(adjacency, nodes, nodes, number, number, comm))
    return replace(found, degree=_degrees(found))


def _degrees(adjacency: Adjacency) -> torch.Tensor:
    """float64 (rows,): the sum of the weights of each row's edges, 0 where they cancel (see graph/sums.py)."""
    total = torch.zeros(len(adjacency.degree), dtype=torch.float64)
    size = torch.zeros_like(total)
    for block in (adjacency.own, *adjacency.halo):
        rows = block.edge_rows
        weight = torch.ones(len(rows), dtype=torch.float64) if block.weight is None else block.weight.double()
        total.index_add_(0, rows, weight)
        size.index_add_(0, rows, weight.abs())
    return torch.where(total.abs() <= ROUNDING * size, 0.0, total)


def _own_list(adjacency: Adjacency) -> Adjacency:
    """The same with a list of its own edges alone, where it has one."""
    kept, blocks = adjacency.edges, (adjacency.own, *adjacency.halo)
    if kept is None:
        return adjacency
    places = [block.edge for block in blocks]
    assert all(place is not None for place in places), "blocks point into the list"
    taken, inverse = torch.cat([place.long() for place in places if place is not None]).unique(return_inverse=True)
    parts = inverse.split([block.num_edges for block in blocks])
    own, *halo = (replace(block, edge=part.to(torch.int64)) for block, part in zip(blocks, parts, strict=True))
    edges = EdgeList(len(taken), *(None if each is None else each[taken] for each in (kept.weight, kept.type)))
    return replace(adjacency, own=own, halo=halo, edges=edges)


def rows_of(features: torch.Tensor | SparseRows, nodes: torch.Tensor) -> torch.Tensor | SparseRows:
    """The rows of some nodes, bool (n_p,)."""
    if isinstance(features, torch.Tensor):
        return features[nodes]
    counts = torch.diff(features.indptr)
    entries = torch.repeat_interleave(nodes, counts)
    indptr = np.concatenate([[0], np.cumsum(counts[nodes].numpy())]).astype(np.int64)
    columns, data = features.indices[entries].numpy(), features.data[entries]
    return sparse_rows(indptr, columns, data.numpy(), features.num_columns, data.dtype)
