"""The fewest rows that serve all cut edges of a linear aggregation: own rows, or sums of own rows.

An edge (i, j) between rank p, which has i, and rank q, which has j, can be served in two ways. q sends its row x_j,
which serves all edges from j into p. Or q sends for i the sum Σ_j A_ij x_j over its own j, which serves all edges from
q into i. So each cut edge has an end whose row or sum is sent. These ends are a vertex cover of the bipartite graph of
the cut edges between the two ranks. The least cover is as large as a largest matching (König 1931). No exchange of one
step, which serves an edge by one of its ends, sends fewer rows.

The adjoint sends gradients of i's rows from p to q. The same cover serves it with its sides exchanged. Where x_j was
sent, a sum returns for j; where a sum was sent for i, the row of i returns. So both directions send equally many rows,
and an undirected graph has one cover for each pair of ranks.

The result is an Adjacency like any other. A received sum is a column of the halo with one edge, of weight 1, to its
row. A sparse matrix makes the sent rows (exchange/send_matrix.py). Streams, rounds and operators do not know of it.
Scales of sources are applied before a sum, scales of rows after it.

The row serves an edge with both ends in the cover, at the receiver. Among the least covers the chosen one gives less
work to the rank with more edges.

Between nodes of several ranks (exchange/peers.py) nodes take the place of ranks. One rank of either node plans a pair.
It gets the edges of the other ranks of its node between the two. A sum is of rows of the whole node, and the owner of
its row adds it.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import HaloPlan, agreed_plan, of_offsets
from hpcgnn.exchange.send_matrix import PartialSums, SendMatrix
from hpcgnn.graph.blocks import edges_of, halo_blocks
from hpcgnn.graph.cover import MOST_LEFT, MOST_RIGHT, least_cover
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.transforms.within_node import to_planners
from hpcgnn.graphfile.ranges import segments

# Sums are worth their structure where they save more than this share of the rows.
WORTHWHILE = 0.05


@dataclass(frozen=True)
class _Columns:
    """Remote edges by their column. indptr: int64 (columns + 1,); rows: int32 (E,), own rows; weight: (E,) or None.
    first: the halo position of column 0.
    """

    indptr: np.ndarray
    rows: np.ndarray
    weight: torch.Tensor | None
    first: int = 0

    def of(self, at: slice) -> tuple[np.ndarray, slice]:
        """(indptr, from 0, of the columns at these halo positions; where their edges stand)."""
        ends = self.indptr[at.start - self.first : at.stop - self.first + 1]
        return ends - ends[0], slice(int(ends[0]), int(ends[-1]))


@dataclass(frozen=True)
class _Cover:
    """A rank's view of a cover in one direction. All bool.

    Attributes:
        nodes_in: (num_halo,), the columns received as rows.
        sums_in: the own rows with a received sum, among the sent rows of the other direction.
        nodes_out: the own rows to send, among the sent rows of this direction.
        sums_out: the columns of the other direction with a sum to send.
    """

    nodes_in: np.ndarray
    sums_in: np.ndarray
    nodes_out: np.ndarray
    sums_out: np.ndarray

    @property
    def adjoint(self) -> "_Cover":
        """The same cover in the other direction."""
        return _Cover(self.sums_out, self.nodes_out, self.sums_in, self.nodes_in)


def least_rows(local: LocalGraph, comm: Communicator, always: bool = False) -> LocalGraph:
    """The LocalGraph whose plans send the fewest rows, for operators that only sum rows of others. Collective.

    It is the same LocalGraph if that would save next to nothing, unless `always`.
    """
    inward, outward = local.inward, local.outward
    columns_in = _columns(inward)
    columns_out = columns_in if outward is inward else _columns(outward)
    pairs_in = _of_pairs(inward, outward, columns_in, comm)
    pairs_out = pairs_in if outward is inward else _of_pairs(outward, inward, columns_out, comm)
    cover = _agreed_cover(inward, outward, pairs_in, comm)
    rows = torch.tensor([inward.plan.num_halo, np.count_nonzero(cover.nodes_in) + np.count_nonzero(cover.sums_in)])
    rows *= inward.plan.peers.place == 0  # of all nodes
    before, after = comm.total(rows, "plan").tolist()
    if not always and not saves(before, after):
        return local
    made_in = _served(inward, outward, columns_in, pairs_out, cover, comm)
    made_out = made_in
    if outward is not inward:
        made_out = _served(outward, inward, columns_out, pairs_in, cover.adjoint, comm)
    return replace(local, inward=made_in, outward=made_out)


def saves(before: int, after: int) -> bool:
    """Whether a cover of `after` rows, of `before` without sums, is worth the structure of sums."""
    return after < (1 - WORTHWHILE) * before


def _columns(adjacency: Adjacency) -> _Columns:
    edges = edges_of(adjacency.halo, 0, adjacency.plan.num_halo)
    rows, columns, weight, _ = edges.taken(torch.argsort(edges.columns, stable=True))
    lengths = np.bincount(columns.numpy(), minlength=adjacency.plan.num_halo)
    return _Columns(np.append(0, np.cumsum(lengths)), rows.numpy(), weight)


def _of_pairs(adjacency: Adjacency, back: Adjacency, columns: _Columns, comm: Communicator) -> _Columns:
    """The _Columns of all ranks of the node, of the pairs of nodes that this rank plans. Collective over the node.

    Rows have the node's numbers. columns: of this rank.
    """
    plan, peers, spread = adjacency.plan, adjacency.plan.peers, back.plan.columns
    if spread is None:
        return columns
    lengths, ends = np.diff(columns.indptr), np.cumsum(plan.receive_counts)
    edges = columns.indptr[ends] - columns.indptr[ends - plan.receive_counts]
    rows_of_node = torch.from_numpy(columns.rows + np.int32(spread.own.start))

    def told(counts: np.ndarray, values: torch.Tensor) -> list[np.ndarray]:
        """By place of the sender."""
        none = values[:0].numpy()
        return [np.concatenate([none, *each.values()]) for each in to_planners(peers, counts, values, comm)]

    counts, rows = told(plan.receive_counts, torch.from_numpy(lengths)), told(edges, rows_of_node)
    weights = None if columns.weight is None else told(edges, columns.weight)
    at = [np.repeat(np.arange(len(each)), each) for each in counts]
    order = np.argsort(np.concatenate(at), kind="stable")
    indptr = np.append(0, np.cumsum(sum(counts, np.zeros_like(counts[0]))))
    weight = None if weights is None else torch.from_numpy(np.concatenate(weights)[order])
    planned = peers.planned(peers.place)
    first = int(plan.receive_counts[: planned.start - 1].sum())
    return _Columns(indptr.astype(np.int64), np.concatenate(rows)[order], weight, first)


def _slices(counts: np.ndarray) -> list[slice]:
    """The places of the rows of ring offsets 1, 2, …, one after another."""
    ends = np.cumsum(counts)
    return [slice(*each) for each in zip((ends - counts).tolist(), ends.tolist(), strict=True)]


def _num_sources(plan: HaloPlan, back: Adjacency) -> int:
    """Rows that are sent from: own ones, or the node's. back: the other direction."""
    return back.own.num_rows if plan.columns is None else plan.columns.num_rows


def _agreed_cover(inward: Adjacency, outward: Adjacency, columns: _Columns, comm: Communicator) -> _Cover:
    """The cover of the direction `inward`. Collective. columns: of the pairs that this rank plans.

    The receiver of a pair computes its cover and sends it to the sender; in an undirected graph one of the two does, by
    turns.
    """
    plan, back, alike, peers = inward.plan, outward.plan, outward is inward, inward.plan.peers
    edges = inward.num_edges if alike else inward.num_edges + outward.num_edges
    loads = peers.sums(np.array(comm.allgather_object(edges)))
    number = np.empty(_num_sources(back, inward), np.int32)
    nodes_in, sums_in = np.zeros(plan.num_halo, bool), np.zeros(back.num_boundary, bool)
    nodes_out, sums_out = sums_in, nodes_in
    if not alike:
        nodes_out, sums_out = np.zeros(plan.num_boundary, bool), np.zeros(back.num_halo, bool)
    arrive_in, arrive_out = _slices(plan.receive_counts), _slices(back.receive_counts)
    leave_in, leave_out = _slices(plan.send_counts), _slices(back.send_counts)
    told, asked = [], []
    for offset in peers.planned(peers.place):
        # The node that rows of this ring offset come from is the one that those of the other offset go to.
        peer, other = plan.peers.source(offset), plan.peers.size - offset
        planner = peers.planner(peer, other)
        columns_at, rows_at = arrive_in[offset - 1], leave_out[other - 1]
        if _finds(plan.peers.number, peer, alike) and plan.receive_counts[offset - 1]:
            own = back.send_rows[rows_at].numpy()
            found = _cover_of_pair(columns, columns_at, own, number, loads, [plan.peers.number, peer])
            nodes_in[columns_at], sums_in[rows_at] = found
            told.append((planner, torch.from_numpy(np.concatenate(found))))
        rows_to, columns_from = leave_in[other - 1], arrive_out[offset - 1]
        if _finds(peer, plan.peers.number, alike) and plan.send_counts[other - 1]:
            size = int(plan.send_counts[other - 1] + back.receive_counts[offset - 1])
            asked.append((planner, torch.empty(size, dtype=torch.bool), nodes_out[rows_to], sums_out[columns_from]))
    comm.exchange(told, [(planner, answer) for planner, answer, _, _ in asked], "plan").finish()
    for _, answer, nodes, sums in asked:
        nodes[:], sums[:] = answer[: len(nodes)].numpy(), answer[len(nodes) :].numpy()
    return _of_all(plan, _Cover(nodes_in, sums_in, nodes_out, sums_out))


def _of_all(plan: HaloPlan, cover: _Cover) -> _Cover:
    """The _Cover of the node: one of its ranks has planned each part of it. Collective over the node."""
    if plan.columns is None:
        return cover
    parts = plan.peers.gather(tuple(np.packbits(each) for each in vars(cover).values()))
    sizes = [len(each) for each in vars(cover).values()]
    whole = [np.bitwise_or.reduce(each) for each in zip(*parts, strict=True)]
    return _Cover(*(np.unpackbits(each, count=size).view(bool) for each, size in zip(whole, sizes, strict=True)))


def _finds(receiver: int, sender: int, alike: bool) -> bool:
    """Whether the receiver finds the cover of a pair."""
    return not alike or (receiver < sender) == ((receiver + sender) % 2 == 0)


def _cover_of_pair(
    columns: _Columns, at: slice, own: np.ndarray, number: np.ndarray, loads: np.ndarray, pair: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """bool: the columns `at` received as rows; and the own rows (m,) with a received sum.

    number: memory for all rows of the node. loads: edges of all nodes; the function updates the two of the pair.
    """
    number[own] = np.arange(len(own), dtype=np.int32)
    indptr, edges = columns.of(at)
    indices = number[columns.rows[edges]]
    _, left, right = least_cover(indptr, indices, len(own))
    degrees = np.diff(indptr), np.bincount(indices, minlength=len(own))
    found = []
    for bit in (MOST_LEFT, MOST_RIGHT):
        nodes, sums = ((side & bit) != 0 for side in (left, right))
        # In both directions together: edges served by rows have their work where these arrive, others where they leave.
        moved = int(degrees[0][nodes].sum() - degrees[1][sums].sum())
        found.append((nodes, sums, loads[pair] + [moved, -moved]))
    nodes, sums, loads[pair] = min(found, key=lambda each: int(each[2].max()))
    return nodes, sums


def _served(
    adjacency: Adjacency,
    back: Adjacency,
    columns: _Columns,
    columns_back: _Columns,
    cover: _Cover,
    comm: Communicator,
) -> Adjacency:
    """An Adjacency served by a cover. Collective.

    columns: of this rank. back, columns_back: of the other direction, the latter of the pairs that this rank plans.
    """
    plan = adjacency.plan
    nodes_in = of_offsets(plan.receive_counts, cover.nodes_in)
    sums_in = of_offsets(back.plan.send_counts, cover.sums_in)
    # What comes from a rank stands at an offset in one direction, and at the other one in the other.
    received = nodes_in + sums_in[::-1]
    sending, sent = _sending(plan, back, columns_back, cover)
    made = agreed_plan(plan.peers, received, sent, sending, plan.cap, comm, plan.near)
    starts = np.cumsum(received) - received
    node_at, sum_at = segments(starts, nodes_in), segments((starts + nodes_in)[::-1], sums_in)
    lengths = np.diff(columns.indptr)
    taken = np.repeat(cover.nodes_in, lengths)
    sum_rows = back.plan.send_rows.numpy()[cover.sums_in]
    if back.plan.columns is not None:  # those of other ranks of the node are added there
        own = back.plan.columns.own
        here = (own.start <= sum_rows) & (sum_rows < own.stop)
        sum_rows, sum_at = sum_rows[here] - np.int32(own.start), sum_at[here]
    rows = np.concatenate([columns.rows[taken], sum_rows])
    position = np.concatenate([np.repeat(node_at, lengths[cover.nodes_in]), sum_at])
    weight = None
    if columns.weight is not None:
        weight = torch.cat([columns.weight[torch.from_numpy(taken)], columns.weight.new_ones(len(sum_at))])
    order = np.lexsort((position, rows))
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=adjacency.own.num_rows)))
    weight = None if weight is None else weight[torch.from_numpy(order)]
    halo = halo_blocks(made.starts, indptr, position[order], weight)
    counts = None if adjacency.own.weight is None else adjacency.edge_counts.int()
    return replace(adjacency, halo=halo, plan=made, counted=adjacency.num_edges, row_counts=counts)


def _sending(plan: HaloPlan, back: Adjacency, columns: _Columns, cover: _Cover) -> tuple[SendMatrix, np.ndarray]:
    """(SendMatrix, int64 (N - 1,) rows for each ring offset) of a direction. Collective over the node.

    back, columns: of the other direction, the latter of the pairs that this rank plans.
    """
    peers, sources = plan.peers, _num_sources(plan, back)
    nodes = of_offsets(plan.send_counts, cover.nodes_out)
    sums = of_offsets(back.plan.receive_counts, cover.sums_out)[::-1]
    counts = nodes + sums
    starts = np.cumsum(counts) - counts
    alone = np.zeros(sources, bool)
    leave, arrive = _slices(plan.send_counts), _slices(back.plan.receive_counts)
    planned = peers.planned(peers.place)
    goes = range(plan.peers.size - planned.stop + 1, plan.peers.size - planned.start + 1)
    here = np.zeros(plan.peers.size - 1, np.int64)
    here[goes.start - 1 : goes.stop - 1] = 1
    rows = [plan.send_rows[leave[offset - 1]][torch.from_numpy(cover.nodes_out[leave[offset - 1]])] for offset in goes]
    indices, lengths, weights = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], []
    for offset in (1 + np.flatnonzero(sums * here)).tolist():
        to, of = leave[offset - 1], arrive[plan.peers.size - offset - 1]
        chosen, (ends, stand) = cover.sums_out[of], columns.of(of)
        edges = columns.rows[stand]
        own = plan.send_rows[to].numpy()[cover.nodes_out[to]]
        alone[own] = True  # goes as it is, which serves its edges
        taken = np.repeat(chosen, np.diff(ends)) & ~alone[edges]
        alone[own] = False
        lengths.append(np.diff(np.append(0, np.cumsum(taken))[ends])[chosen])
        indices.append(edges[taken])
        if columns.weight is not None:
            weights.append(columns.weight[stand][torch.from_numpy(taken)])
    weight = None if columns.weight is None else torch.cat([columns.weight[:0], *weights])
    rows_at, at = (
        torch.from_numpy(segments(first, count * here).astype(np.int32))
        for first, count in ((starts, nodes), (starts + nodes, sums))
    )

    # By ring offset of sending, which the planners have in the other order.
    def joined_all(part: torch.Tensor) -> torch.Tensor:
        return peers.joined(part, descending=True)

    before = sum(peers.gather(sum(map(len, indices)))[peers.place + 1 :])
    edges_end = before + torch.cumsum(torch.from_numpy(np.concatenate(lengths)), 0)
    if peers.place == len(peers.ranks) - 1:
        edges_end = torch.cat([torch.zeros(1, dtype=torch.int64), edges_end])
    indptr = joined_all(edges_end)
    summed = PartialSums(
        joined_all(at),
        joined_all(rows_at),
        indptr,
        joined_all(torch.from_numpy(np.concatenate(indices))),
        None if weight is None else joined_all(weight),
    )
    kernels.check_block(indptr, summed.indices, None, len(summed.at), sources)
    return SendMatrix(joined_all(torch.cat([torch.zeros(0, dtype=torch.int32), *rows])), summed), counts
