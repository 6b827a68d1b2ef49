"""The structure of a rank that reads the rows of the other ranks of its node where they are (exchange/stream.py).

Edges from ranks of the node join the own block, whose columns are then rows of the node's matrix: those of the node's
ranks, one rank's after the other's. Halo, rounds and messages remain for other nodes, and the node has them as one
(between_nodes.py). The edges of a row are in the order: own, then those of each other rank as they came, then those of
other nodes; so the sum of a row is always made in one order.
"""

from dataclasses import replace

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.exchange.nodes import NodeRows, Peers, Spread, cap_of_nodes
from hpcgnn.exchange.plan import HaloPlan, Neighbours, gather_halo
from hpcgnn.graph.blocks import Block, halo_blocks, joined
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.transforms.between_nodes import node_plan
from hpcgnn.placement.ownership import MOST_INT32

# Edges that are moved at a time.
_PIECE = 1 << 20


def within_node(
    local: LocalGraph, rows: NodeRows, comm: Communicator, returns: bool, widens: bool = False
) -> LocalGraph:
    """The LocalGraph of which the rows of this node's ranks are read where they are. returns: whether anything returns
    to the rows along the edges, as under attention; widens: whether rows are narrowed on their way. Collective. Raises
    GraphError on all ranks where a compute node has more rows than int32 numbers.
    """
    peers = Peers.nodes(rows, comm)
    cap = cap_of_nodes(local.inward.plan.cap, peers.fewest, returns, widens)
    num_inward, num_outward = local.inward.own.num_rows, local.outward.own.num_rows
    columns_in, columns_out = rows.spread(num_outward), rows.spread(num_inward)
    with comm.together("numbering the nodes of a compute node"):
        most = max(columns_in.num_rows, columns_out.num_rows)
        if most > MOST_INT32:
            raise GraphError(
                f"the ranks of a compute node own {most:,} nodes of the graph together, expected at most "
                f"{MOST_INT32:,}; use --intra-node messages, or more compute nodes"
            )
    inward = _joined(local.inward, columns_in, peers, cap, comm, returns)
    outward = inward
    if local.outward is not local.inward:
        outward = _joined(local.outward, columns_out, peers, cap, comm, returns)
    return replace(local, inward=inward, outward=outward)


def _joined(
    adjacency: Adjacency, columns: Spread, peers: Peers, cap: int, comm: Communicator, returns: bool
) -> Adjacency:
    """An Adjacency whose own block has the edges from all ranks of the node. Collective."""
    assert peers.rows is not None, "ranks of a node have memory that they share"
    plan, rows = adjacency.plan, peers.rows
    numbers = torch.arange(columns.own.start, columns.own.stop, dtype=torch.int64)
    column = gather_halo(plan, numbers, comm).numpy()
    by_rank = peers.offsets()
    by_offset = np.array([by_rank[plan.source(offset)] for offset in range(1, plan.size)], np.int64)
    node_offset = np.repeat(by_offset, plan.receive_counts)
    near = node_offset == 0
    edges = _Edges(adjacency, near)
    back = columns.num_own + np.cumsum(near) - 1 if returns else None
    own = _with_near(adjacency.own, edges, column, back, columns)
    found = _neighbours(plan, rows, columns, int(near.sum()) if returns else 0)
    far, place = node_plan(peers, found, node_offset[~near], column[~near], cap, comm)
    row, position, weight, edge = edges.far
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=len(own.indptr) - 1)))
    halo = halo_blocks(far.starts, indptr, place[(np.cumsum(~near) - 1)[position]], weight, edge)
    return replace(adjacency, own=own, halo=halo, plan=far)


class _Edges:
    """The edges of all rounds, by own row. near: bool (num_halo,), the columns of this node's ranks. row: int32,
    ascending; position: of the halo; weight, edge or None: each of near edges and of the others.
    """

    def __init__(self, adjacency: Adjacency, near: np.ndarray) -> None:
        blocks = adjacency.halo
        row, position = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for block in blocks:
            assert block.rows is not None and block.first_column is not None, "a round's block says where it is"
            row.append(np.repeat(block.rows.numpy(), np.diff(block.indptr.numpy())))
            position.append(block.indices.numpy() + np.int64(block.first_column))
        carried = joined([block.weight for block in blocks]), joined([block.edge for block in blocks])
        all_rows, all_positions = np.concatenate(row), np.concatenate(position)
        del row, position
        order = np.argsort(all_rows, kind="stable")
        self.near, self.far = (
            (
                all_rows[part],
                all_positions[part],
                *(None if each is None else each[torch.from_numpy(part)] for each in carried),
            )
            for part in (order[near[all_positions[order]]], order[~near[all_positions[order]]])
        )


def _with_near(own: Block, edges: _Edges, column: np.ndarray, back: np.ndarray | None, columns: Spread) -> Block:
    """The own block, whose columns become the node's, with the near edges behind the own ones of each row."""
    row, position, *carried = edges.near
    own_indptr = own.indptr.numpy()
    near_indptr = np.append(0, np.cumsum(np.bincount(row, minlength=own.num_rows)))
    indptr = own_indptr + near_indptr
    indices = np.empty(indptr[-1], np.int32)
    to = np.empty(indptr[-1] if back is not None else 0, np.int32)
    before = own.weight, own.edge
    moved = [None if each is None else torch.empty(int(indptr[-1]), dtype=each.dtype) for each in before]
    first = 0
    while first < own.num_rows:
        last = max(first + 1, int(np.searchsorted(own_indptr, own_indptr[first] + _PIECE, side="right")) - 1)
        part = slice(own_indptr[first], own_indptr[last])
        shift = np.repeat(near_indptr[first:last], np.diff(own_indptr[first : last + 1]))
        at, mine = np.arange(part.start, part.stop) + shift, own.indices[part].numpy()
        indices[at] = mine + columns.own.start
        if back is not None:
            to[at] = mine
        for new, old in zip(moved, before, strict=True):
            if new is not None and old is not None:
                new[torch.from_numpy(at)] = old[part]
        first = last
    at = np.arange(len(row)) + own_indptr[row + np.int64(1)]
    indices[at] = column[position]
    if back is not None:
        to[at] = back[position]
    for new, old in zip(moved, carried, strict=True):
        if new is not None and old is not None:
            new[torch.from_numpy(at)] = old
    made = Block(
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        weight=moved[0],
        edge=moved[1],
        returns=None if back is None else torch.from_numpy(to),
    )
    kernels.check_block(made.indptr, made.indices, None, own.num_rows, columns.num_rows)
    return made


def _neighbours(plan: HaloPlan, rows: NodeRows, columns: Spread, num_read: int) -> Neighbours:
    """The Neighbours of a direction. plan: of messages between ranks; num_read: rows of others of the node to which
    something returns.
    """
    returns = rows.spread(columns.num_own + num_read)
    taken: list[tuple[int, torch.Tensor]] = []
    if not any(rows.gather(num_read)):
        return Neighbours(rows, columns, returns, taken)
    counts = np.zeros(len(rows.ranks), np.int64)
    for place, rank in enumerate(rows.ranks):
        offset = (plan.rank - rank) % plan.size
        counts[place] = plan.receive_counts[offset - 1] if offset else 0
    for place, theirs in enumerate(rows.gather(counts)):
        offset = (rows.ranks[place] - plan.rank) % plan.size
        if offset == 0 or theirs[columns.place] == 0:
            continue
        # They have what they read in the order of their ring offsets.
        before = [
            theirs[other]
            for other, rank in enumerate(rows.ranks)
            if 0 < (rows.ranks[place] - rank) % plan.size < offset
        ]
        start = returns.first[place] + columns.first[place + 1] - columns.first[place] + int(sum(before))
        taken.append((start, plan.rows_to(offset)))
    return Neighbours(rows, columns, returns, taken)
