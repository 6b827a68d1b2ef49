"""The halo of a node: all rows of another node that some of its ranks need, planned by its ranks together.

Each rank knows its own needs. The pairs of nodes are dealt to the ranks of both. One rank of each node, the planner of
the pair, makes one list of its node's needs, and sends it to the planner on the other end. Plans lie in
memory that the ranks of the node share (see exchange/nodes.py).
"""

from collections.abc import Iterable

import numpy as np
import torch

from hpcgnn.comm import Communicator, Message
from hpcgnn.exchange.nodes import Peers
from hpcgnn.exchange.plan import HaloPlan, Neighbours, agreed_plan
from hpcgnn.exchange.sending import Sending


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
    sending = Sending(peers.joined(rows, descending=True))
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
