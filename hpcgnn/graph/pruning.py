"""Rows that the loss cannot see are not computed, and not sent.

The loss looks at the training nodes. So the last layer is computed for these alone, the layer before it for them and
their in-neighbours, and so on backwards:

    R_L = training nodes        R_(l-1) = R_l ∪ in-neighbours of R_l

The result is exact: nothing is sampled. Layer l has a share of its own of the graph, with rows R_l, columns R_(l-1) and
a halo of its own in each direction, filtered from the rank's one structure. Matrices hold the rows of these sets only,
in the order of the nodes. A layer that would compute most rows anyway is left as it is, and with it those before.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.blocks import Block, joined
from hpcgnn.graph.local import Adjacency, LocalGraph, assemble

# Above this share of all nodes a layer keeps all rows: a structure of its own takes memory. A class of layers may say
# otherwise (`worthwhile`), as attention does, which has more to do for each row and edge.
WORTHWHILE = 0.5
# Fields of a LocalGraph that no layer asks for where it does not compute all rows. `Any`, so that those who have all of
# a graph need not ask whether they are there.
_NOT_NEEDED: Any = None


def prune(
    local: LocalGraph, worthwhile: Sequence[float], prunable: int, keeps_input: bool, comm: Communicator
) -> list[LocalGraph | None]:
    """For each layer what it computes of the graph, None for all. Collective.

    worthwhile: for each layer, the share of all nodes above which it keeps all rows. prunable: how many of the last
    layers may compute some of their rows only. keeps_input: whether the first layer starts from a kept aggregate; its
    share then has all edges, and only `outputs` of its own.
    """
    layers = len(worthwhile)
    sets: list[torch.Tensor] = []
    while len(sets) < prunable:
        needed = with_in_neighbours(local, sets[-1], comm) if sets else local.mask("train")
        if comm.total(needed.sum().view(1), "plan").item() > worthwhile[layers - 1 - len(sets)] * local.num_nodes:
            break
        sets.append(needed)
    shares: list[LocalGraph | None] = [None] * layers
    for back, outputs in enumerate(sets):
        layer = layers - 1 - back
        # The features are there for all nodes: the first layer takes them as they lie.
        inputs = sets[back + 1] if back + 1 < len(sets) and layer > 0 else torch.ones_like(outputs)
        if layer == 0 and keeps_input:
            shares[layer] = replace(local, outputs=torch.nonzero(outputs).int().squeeze(1))
        else:
            shares[layer] = _share(local, inputs, outputs, comm)
    return shares


def training_nodes(local: LocalGraph, comm: Communicator) -> LocalGraph | None:
    """The share of a model whose layers see each node by itself: the training nodes with rows of their own of the
    features, and none of the edges. None where they are most of all nodes, or the features are sparse. Collective.
    """
    needed = local.mask("train")
    most = comm.total(needed.sum().view(1), "plan").item() > WORTHWHILE * local.num_nodes
    if most or not isinstance(local.features, torch.Tensor):
        return None
    return replace(
        local,
        features=local.features[needed],
        labels=_NOT_NEEDED,
        split=_NOT_NEEDED,
        node_type=None,
        original_id=local.original_id[needed],
    )


def with_in_neighbours(local: LocalGraph, needed: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """bool (n_p,): own nodes that are needed (n_p,) or have an edge to a node of any rank that is. Collective."""
    remote, result = gather_halo(local.outward.plan, needed, comm), needed.clone()
    for block in (local.outward.own, *local.outward.halo):
        columns = needed if block.first_column is None else remote[block.first_column :]
        hits = torch.zeros(block.num_edges + 1, dtype=torch.int64)
        torch.cumsum(columns[block.indices], 0, out=hits[1:])
        hit = hits[block.indptr[1:]] > hits[block.indptr[:-1]]
        if block.rows is None:
            result |= hit
        else:
            result[block.rows[hit].long()] = True
    return result


def _share(local: LocalGraph, inputs: torch.Tensor, outputs: torch.Tensor, comm: Communicator) -> LocalGraph:
    """The LocalGraph of the edges from nodes in inputs (n_p,) to nodes in outputs (n_p,), on all ranks. Collective."""
    source, destination = numbers(inputs), numbers(outputs)
    inward = filtered(local.inward, outputs, inputs, destination, source, comm)
    outward = filtered(local.outward, inputs, outputs, source, destination, comm)
    return replace(
        local,
        inward=inward,
        outward=outward,
        features=local.features if bool(inputs.all()) else _NOT_NEEDED,
        labels=_NOT_NEEDED,
        split=_NOT_NEEDED,
        node_type=None,
        original_id=local.original_id[inputs],
        outputs=source[outputs],
    )


def numbers(mask: torch.Tensor) -> torch.Tensor:
    """int32 (n,): the number of each node among those of the mask, -1 for the others."""
    return torch.where(mask, torch.cumsum(mask, 0, dtype=torch.int32) - 1, -1)


def filtered(
    adjacency: Adjacency,
    rows: torch.Tensor,
    columns: torch.Tensor,
    row_number: torch.Tensor,
    column_number: torch.Tensor,
    comm: Communicator,
) -> Adjacency:
    """The Adjacency between own rows (n_p,) bool and columns (n_p,) bool, numbered anew. Collective."""
    plan = adjacency.plan
    remote = gather_halo(plan, column_number, comm)
    owners = torch.repeat_interleave(
        torch.tensor([plan.source(offset) for offset in range(1, plan.size)], dtype=torch.int32),
        torch.from_numpy(plan.receive_counts),
    )
    here = torch.full((len(columns),), plan.rank, dtype=torch.int32)
    parts = [_edges(adjacency.own, row_number, column_number, here)]
    for block in adjacency.halo:
        parts.append(_edges(block, row_number, remote[block.first_column :], owners[block.first_column :]))
    row, column, owner = (torch.cat(each) for each in zip(*(ends for ends, _ in parts)))
    order = torch.argsort(row, stable=True)
    row, column, owner = row[order], column[order], owner[order]
    carried = (joined(each) for each in zip(*(carried for _, carried in parts)))
    weight, place = (None if each is None else each[order] for each in carried)
    shape = int(rows.sum()), int(columns.sum())
    own, halo, fewer = assemble(row.numpy(), owner.numpy(), column.numpy(), weight, place, *shape, plan.cap, comm)
    return Adjacency(own, halo, fewer, adjacency.degree[rows], adjacency.edges)


def _edges(
    block: Block, row_number: torch.Tensor, column_number: torch.Tensor, owners: torch.Tensor
) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor | None, torch.Tensor | None]]:
    """((row, column, owner), (weight, edge)) of a block's edges whose ends both have a number."""
    rows = row_number if block.rows is None else row_number[block.rows.long()]
    row = torch.repeat_interleave(rows, torch.diff(block.indptr))
    column = column_number[block.indices]
    taken = (row >= 0) & (column >= 0)
    weight, edge = (None if each is None else each[taken] for each in (block.weight, block.edge))
    return (row[taken], column[taken], owners[block.indices][taken]), (weight, edge)
