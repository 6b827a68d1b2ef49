"""The structure of a rank that reads the rows of the other ranks of its node where they are (exchange/stream.py).

Edges from ranks of the node join the own block, whose columns are then rows of the node's matrix: those of the node's
ranks, one rank's after the other's. Halo, rounds and messages remain for other nodes, and the node has them as one. The
edges of a row are in the order: own, then those of each other rank as they came, then those of other nodes; so the sum
of a row is always made in one order.

The halo of a node is all rows of another node that some of its ranks need. Each rank knows its own needs. The pairs of
nodes are dealt to the ranks of both. One rank of each node, the planner of the pair, makes one list of its node's
needs, and sends it to the planner on the other end. Plans lie in memory that the ranks of the node share (see
exchange/peers.py).
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator, Message
from hpcgnn.errors import GraphError
from hpcgnn.exchange.nodes import NodeLayout, SharedRows
from hpcgnn.exchange.peers import Peers, cap_of_nodes
from hpcgnn.exchange.plan import HaloPlan, Neighbours, agreed_plan, gather_halo
from hpcgnn.exchange.send_matrix import SendMatrix
from hpcgnn.graph.blocks import Block, EdgeArrays, edges_of, halo_blocks
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.placement.ownership import MOST_INT32


def node_plan(
    peers: Peers, near: Neighbours, offset: np.ndarray, ids: np.ndarray, cap: int, comm: Communicator
) -> tuple[HaloPlan, np.ndarray]:
    """(the HaloPlan of the node, int64 (m,): the place in its halo of each row that this rank needs). Collective.

    near: of the node; offset, ids: int64 (m,), the ring offset of the node that each row is of, and the
    row's number there; each once. cap: rows of a round.
    """
    order = np.lexsort((ids, offset))
    counts = np.bincount(offset, minlength=peers.size)[1:]
    wanted = to_planners(peers, counts, torch.from_numpy(ids[order].astype(np.int32)), comm)
    unions, places, received = list[np.ndarray](), list[list[np.ndarray]](), np.zeros(peers.size - 1, np.int64)
    for k in peers.planned(peers.place):
        parts = [each[k] for each in wanted]
        union, found = np.unique(np.concatenate(parts), return_inverse=True)
        received[k - 1] = len(union)
        unions.append(union)
        places.append(np.split(found.reshape(-1), np.cumsum([len(part) for part in parts])[:-1]))
    received = sum(peers.gather(received), np.zeros_like(received))
    first = np.cumsum(received) - received
    answers = [
        torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *(first[k - 1] + part[of] for k, part in planned)]))
        for of, planned in (
            (of, list(zip(peers.planned(peers.place), places, strict=True))) for of in range(len(peers.ranks))
        )
    ]
    places_found = torch.empty(len(ids), dtype=torch.int64)
    _exchange(comm, zip(peers.ranks, answers, strict=True), _by_planner(peers, counts, places_found))
    position = np.empty(len(ids), np.int64)
    position[order] = places_found.numpy()
    rows, sent = _told(peers, unions, comm)
    sending = SendMatrix(peers.joined(rows, descending=True))
    return agreed_plan(peers, received, sent, sending, cap, comm, near), position


def to_planners(peers: Peers, counts: np.ndarray, values: torch.Tensor, comm: Communicator) -> list[dict]:
    """By place, the values of each rank of the node for the pairs that this rank plans: {ring offset: values}. values:
    (m,) of this rank for all ring offsets, counts (N - 1,) of each, one after another. Collective over the node.
    """
    planned, all_counts = peers.planned(peers.place), peers.gather(counts)
    part = slice(planned.start - 1, planned.stop - 1)
    come = [torch.empty(int(each[part].sum()), dtype=values.dtype) for each in all_counts]
    _exchange(comm, _by_planner(peers, counts, values), zip(peers.ranks, come, strict=True))
    ends = [np.cumsum(each[part])[:-1] for each in all_counts]
    return [dict(zip(planned, np.split(got.numpy(), end), strict=False)) for got, end in zip(come, ends, strict=True)]


def _by_planner(peers: Peers, counts: np.ndarray, values: torch.Tensor) -> list[Message]:
    """[(rank, its part)] of values of all ring offsets, counts (N - 1,) of each, by who plans them."""
    ends = np.append(0, np.cumsum(counts))
    planned = [peers.planned(place) for place in range(len(peers.ranks))]
    return [(rank, values[ends[k.start - 1] : ends[k.stop - 1]]) for rank, k in zip(peers.ranks, planned, strict=True)]


def _exchange(comm: Communicator, outgoing: Iterable[Message], incoming: Iterable[Message]) -> None:
    """Send and receive the messages with values: both ends know."""
    sent, received = ([each for each in messages if len(each[1])] for messages in (outgoing, incoming))
    comm.exchange(sent, received, "plan").finish()


def _told(peers: Peers, unions: list[np.ndarray], comm: Communicator) -> tuple[torch.Tensor, np.ndarray]:
    """(int32: the rows that go to the nodes that this rank plans for, by ring offset of sending; int64 (N - 1,): how
    many go to each node of all). unions: which rows come, by ring offset. Collective.
    """
    planned = peers.planned(peers.place)
    numbers = np.zeros(comm.size, np.int64)
    others = [peers.planner(peers.source(k), peers.size - k) for k in planned]
    numbers[others] = [len(each) for each in unions]
    asked = comm.alltoall(torch.from_numpy(numbers), "plan").numpy()[others]
    come = [torch.empty(int(count), dtype=torch.int32) for count in asked]
    gone = [torch.from_numpy(each.astype(np.int32)) for each in unions]
    _exchange(comm, zip(others, gone, strict=True), zip(others, come, strict=True))
    # What goes to the node that rows of offset k come from goes at offset N - k.
    sent = np.zeros(peers.size - 1, np.int64)
    sent[[peers.size - k - 1 for k in planned]] = asked
    rows = torch.cat([torch.zeros(0, dtype=torch.int32), *reversed(come)])
    return rows, sum(peers.gather(sent), np.zeros_like(sent))


def within_node(
    local: LocalGraph, rows: SharedRows, comm: Communicator, returns: bool, widens: bool = False
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
    adjacency: Adjacency, columns: NodeLayout, peers: Peers, cap: int, comm: Communicator, returns: bool
) -> Adjacency:
    """An Adjacency whose own block has the edges from all ranks of the node. Collective."""
    assert peers.rows is not None, "ranks of a node have memory that they share"
    plan, rows = adjacency.plan, peers.rows
    numbers = torch.arange(columns.own.start, columns.own.stop, dtype=torch.int64)
    column = gather_halo(plan, numbers, comm).numpy()
    by_rank = peers.offsets()
    by_offset = np.array([by_rank[plan.peers.source(offset)] for offset in range(1, plan.peers.size)], np.int64)
    node_offset = np.repeat(by_offset, plan.receive_counts)
    near = node_offset == 0
    edges = edges_of(adjacency.halo, 0, plan.num_halo)
    order = torch.argsort(edges.rows, stable=True)
    here = torch.from_numpy(near)[edges.columns[order]]
    back = columns.num_own + np.cumsum(near) - 1 if returns else None
    own = _with_near(adjacency.own, edges.taken(order[here]), column, back, columns)
    found = _neighbours(plan, rows, columns, returns)
    far, place = node_plan(peers, found, node_offset[~near], column[~near], cap, comm)
    row, position, weight, edge = edges.taken(order[~here])
    indptr = np.append(0, np.cumsum(np.bincount(row.numpy(), minlength=own.num_rows)))
    halo = halo_blocks(far.starts, indptr, place[(np.cumsum(~near) - 1)[position.numpy()]], weight, edge)
    return replace(adjacency, own=own, halo=halo, plan=far)


def _with_near(
    own: Block, edges: EdgeArrays, column: np.ndarray, back: np.ndarray | None, columns: NodeLayout
) -> Block:
    """The own block, whose columns become the node's, with the near edges, in the order of rows, behind the own ones of
    each row. column, back: by halo position, the column of a near row, and the row that gets its return.
    """
    before, rows, position = own.indptr.numpy(), edges.rows.numpy(), edges.columns.numpy()
    at = before[rows + np.int64(1)]

    def inserted(old: torch.Tensor | None, new: np.ndarray | torch.Tensor | None) -> torch.Tensor | None:
        return None if old is None else torch.from_numpy(np.insert(old.numpy(), at, () if new is None else new))

    indices = inserted(own.indices + columns.own.start, column[position])
    assert indices is not None
    indptr = before + np.append(0, np.cumsum(np.bincount(rows, minlength=own.num_rows)))
    made = Block(
        torch.from_numpy(indptr),
        indices,
        weight=inserted(own.weight, edges.weight),
        edge=inserted(own.edge, edges.edge),
        returns=None if back is None else inserted(own.indices, back[position]),
    )
    kernels.check_block(made.indptr, made.indices, None, own.num_rows, columns.num_rows)
    return made


def _neighbours(plan: HaloPlan, rows: SharedRows, columns: NodeLayout, returns: bool) -> Neighbours:
    """The Neighbours of a direction. plan: of messages between ranks; returns: whether anything returns to the rows of
    others of the node.
    """
    number, size = plan.peers.number, plan.peers.size
    offsets = (number - np.array(rows.ranks)) % size
    counts = np.append(plan.receive_counts, 0)[offsets - 1] * returns  # none of its own
    order, begins = np.argsort(offsets), np.empty_like(counts)
    begins[order] = np.cumsum(counts[order]) - counts[order]  # what a rank reads is in the order of ring offsets
    all_returns, taken = rows.spread(columns.num_own + int(counts.sum())), list[tuple[int, torch.Tensor]]()
    for place, (theirs, begin) in enumerate(rows.gather((counts, begins))):
        if theirs[columns.place]:
            first = all_returns.first[place] + columns.first[place + 1] - columns.first[place]
            taken.append((first + int(begin[columns.place]), plan.rows_to((rows.ranks[place] - number) % size)))
    return Neighbours(rows, columns, all_returns, taken)
