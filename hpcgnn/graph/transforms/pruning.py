"""Rows that the loss cannot see are not computed, and not sent.

The loss reads the training nodes. So the last layer is computed for these alone. The layer before it is computed for
them and their in-neighbours, and so on backwards:

    R_L = training nodes        R_(l-1) = R_l ∪ in-neighbours of R_l

The result is exact: nothing is sampled. Layer l has its own share of the graph, with rows R_l, columns R_(l-1) and
a halo in each direction, filtered from the rank's one structure. Matrices hold the rows of these sets only,
in the order of the nodes. A layer that would compute most rows anyway is left as it is, and with it those before.

Filtering goes over the edges some rows at a time, once to count them and once to take them. In addition to the whole
graph a rank holds the result, and enough of the edges to other ranks for agreeing on their halo.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.local import Adjacency, LocalGraph, with_halo
from hpcgnn.graph.split import RemoteEdges
from hpcgnn.graphfile.ranges import row_blocks, segments


def numbers(mask: torch.Tensor) -> torch.Tensor:
    """int32 (n,): the number of each node among the nodes of the mask, -1 for the others."""
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
    plan, shape = adjacency.plan, (int(rows.sum()), int(columns.sum()))
    remote = gather_halo(plan, column_number, comm)
    ranks = [plan.peers.source(offset) for offset in range(1, plan.peers.size)]
    owners = np.repeat(np.array(ranks, np.min_scalar_type(plan.peers.size)), plan.receive_counts)
    here = _taken([adjacency.own], row_number, column_number, shape[0])
    own = Block(torch.from_numpy(here.indptr), torch.from_numpy(here.local_id), None, here.weight, None, here.place)
    away = _taken(adjacency.halo, row_number, remote, shape[0], owners)
    own, halo, fewer = with_halo(own, away, *shape, plan.cap, comm)
    return Adjacency(own, halo, fewer, adjacency.degree[rows], adjacency.edges)


@dataclass(frozen=True)
class Tile:
    """Edges of a block with numbers at both ends.

    Attributes:
        edges: int64 (E,), their numbers in the block.
        columns: int32 (E,), the numbers of their columns.
        rows: int32 (R,), the numbers of their rows.
        counts: int64 (R,), edges of each row.
    """

    edges: np.ndarray
    columns: np.ndarray
    rows: np.ndarray
    counts: np.ndarray


def tiles(block: Block, row_number: torch.Tensor, column_number: torch.Tensor) -> Iterator[Tile]:
    """column_number: of the halo, or of own nodes for the own block."""
    indptr, indices, first_column = block.indptr.numpy(), block.indices.numpy(), block.first_column or 0
    number, column_numbers = row_number.numpy(), column_number.numpy()[first_column:]
    for first, last in row_blocks(indptr):
        rows = number[first:last] if block.rows is None else number[block.rows[first:last].numpy()]
        there = np.flatnonzero(rows >= 0)
        if len(there) == 0:
            continue
        begins, ends = indptr[first + there], indptr[first + there + 1]
        edges = segments(begins, ends - begins)
        columns = column_numbers[indices[edges]]
        taken = columns >= 0
        of_row = np.repeat(np.arange(len(there)), ends - begins)[taken]
        counts = np.bincount(of_row, minlength=len(there))
        filled = counts > 0
        yield Tile(edges[taken], columns[taken], rows[there[filled]], counts[filled])


def _taken(
    blocks: Sequence[Block],
    row_number: torch.Tensor,
    column_number: torch.Tensor,
    num_rows: int,
    owners: np.ndarray | None = None,
) -> RemoteEdges:
    """The edges of all blocks with numbers at both ends, in the order of rows, in a row one block after another.

    owners: of the columns; None: without.
    """
    indptr = np.zeros(num_rows + 1, np.int64)
    for block in blocks:
        for tile in tiles(block, row_number, column_number):
            indptr[tile.rows + 1] += tile.counts
    np.cumsum(indptr, out=indptr)
    at, total = indptr[:-1].copy(), int(indptr[-1])
    columns = np.empty(total, np.int32)
    owner = np.zeros(0, np.uint8) if owners is None else np.empty(total, owners.dtype)
    weight, edge = (
        torch.empty(total, dtype=like.dtype) if blocks and (like := getattr(blocks[0], name)) is not None else None
        for name in ("weight", "edge")
    )
    for block in blocks:
        for tile in tiles(block, row_number, column_number):
            places = segments(at[tile.rows], tile.counts)
            at[tile.rows] += tile.counts
            columns[places] = tile.columns
            if owners is not None:
                owner[places] = owners[block.indices.numpy()[tile.edges] + (block.first_column or 0)]
            for new, old in ((weight, block.weight), (edge, block.edge)):
                if new is not None and old is not None:
                    new[torch.from_numpy(places)] = old[torch.from_numpy(tile.edges)]
    return RemoteEdges(indptr, owner, columns, weight, edge)


# Above this share of all nodes a layer keeps all rows: a structure of its own takes memory. A class of layers may say
# otherwise (`worthwhile`), as attention does, which has more to do for each row and edge.
WORTHWHILE = 0.5
# Fields of a LocalGraph that no layer asks for where it does not compute all rows. `Any`, so that those who have all of
# a graph need not ask whether they are there.
_NOT_NEEDED: Any = None


def prune(
    local: LocalGraph,
    worthwhile: Sequence[float],
    prunable: int,
    keeps_input: bool,
    comm: Communicator,
    seen: torch.Tensor | None = None,
) -> list[LocalGraph | None]:
    """Each layer's part of the graph, None for all of it. Collective.

    Args:
        worthwhile: for each layer, the share of all nodes above which it keeps all rows.
        prunable: the number of last layers that may compute some of their rows only.
        keeps_input: whether the first layer starts from a kept aggregate; its share then has all edges, and only
            `outputs` of its own.
        seen: bool (n_p,), the own nodes that the loss reads; None: the training nodes.
    """
    shares: list[LocalGraph | None] = [None] * len(worthwhile)
    seen = local.mask("train") if seen is None else seen
    for layer, inputs, outputs in rows_of_layers(local, seen, worthwhile, prunable, comm):
        if layer == 0 and keeps_input:
            shares[layer] = replace(local, outputs=torch.nonzero(outputs).int().squeeze(1))
        else:
            shares[layer] = _share(local, inputs, outputs, comm)
    return shares


def rows_of_layers(
    local: LocalGraph, seen: torch.Tensor, worthwhile: Sequence[float], prunable: int, comm: Communicator
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """[(layer, own nodes that it takes, own nodes that it computes: bool (n_p,))] of layers that do not compute all,
    the last one first. Collective.
    """
    layers = len(worthwhile)
    sets: list[torch.Tensor] = []
    while len(sets) < prunable:
        needed = sets[-1] | (edges_to(local, sets[-1], comm) > 0) if sets else seen
        if comm.total(needed.sum().view(1), "plan").item() > worthwhile[layers - 1 - len(sets)] * local.num_nodes:
            break
        sets.append(needed)
    found = []
    for back, outputs in enumerate(sets):
        layer = layers - 1 - back
        # The features are there for all nodes: the first layer takes them as they lie.
        inputs = sets[back + 1] if back + 1 < len(sets) and layer > 0 else torch.ones_like(outputs)
        found.append((layer, inputs, outputs))
    return found


def training_nodes(local: LocalGraph, comm: Communicator) -> LocalGraph | None:
    """The share of a model whose layers see each node by itself. Collective.

    It has the training nodes with their own rows of the features, and no edges. None if they are most of all nodes, or
    the features are sparse.
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


def edges_to(local: LocalGraph, nodes: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """int64 (n_p,): how many edges each own node has to `nodes`, bool (n_p,) on every rank. Collective."""
    outward, found = local.outward, torch.zeros(local.num_owned, dtype=torch.int64)
    near, far = (each.to(torch.int8) - 1 for each in (nodes, gather_halo(outward.plan, nodes, comm)))
    every = torch.arange(local.num_owned, dtype=torch.int32)
    for block in (outward.own, *outward.halo):
        for tile in tiles(block, every, near if block.first_column is None else far):
            found[torch.from_numpy(tile.rows).long()] += torch.from_numpy(tile.counts)
    return found


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
