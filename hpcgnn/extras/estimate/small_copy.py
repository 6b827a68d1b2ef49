"""A small copy of a rank, with nodes, edges, halo rows and training nodes in the rank's proportions.

Its edges are random. The cost of a step does not depend on them: memory and traffic follow from the numbers, and work
nearly so. The other ranks count as equal to this one: received messages are copies of sent ones, so that masks have as
many nodes there as here; only requested rows must exist. Sent messages are counted as on a real transport.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import Exchange, Message, SoloCommunicator
from hpcgnn.comm.transport import traffic
from hpcgnn.engine.probe import made_up
from hpcgnn.graph.local import Adjacency, LocalGraph, build_adjacency
from hpcgnn.graphfile.ranges import segments
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.placement.order import FoundEdges, LocalOrder
from hpcgnn.plan.run_plan import RunPlan


class GhostCommunicator(SoloCommunicator):
    """Rank 0 of `size`. Not collective, since there are no others.

    Attributes:
        wanted: {rank: int32 tensor}, owned rows that others request for a halo plan, if not as many as this rank
            requests.
        summed: (messages, bytes) of sums alone.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.summed = size, (0, 0)
        self.wanted: dict[int, torch.Tensor] = {}
        self._told: set[int] = set()  # ranks that have sent their number of requested rows, and not yet the rows
        self._columns = 1  # own nodes that have a number

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        used, *counts = traffic(outgoing, incoming)
        if used:
            self.ledger.add(kind, *counts)
        given = dict(outgoing)
        for rank, tensor in incoming:
            self._make_up(rank, tensor, given.get((self.size - rank) % self.size), kind)
        return Exchange()

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        self.ledger.add(kind, messages=1, bytes_sent=numbers.nbytes, bytes_received=numbers.nbytes)
        result = torch.cat([numbers[:1], numbers[1:].flip(0)])
        for rank, rows in self.wanted.items():
            result[rank] = len(rows)
        self._told = {int(rank) for rank in result.nonzero()}
        return result

    def _make_up(self, rank: int, tensor: torch.Tensor, given: torch.Tensor | None, kind: str) -> None:
        """Make up a message from a rank. given: this rank's message to the rank at the same distance in the other
        direction.
        """
        numbers = kind == "plan" and tensor.dtype == torch.int32
        if numbers and rank in self._told:
            self._told.remove(rank)
            rows = self.wanted.get(rank)
            tensor.copy_(torch.arange(len(tensor)) % self._columns if rows is None else rows)
        elif given is None or not given.numel() or (given.dtype == torch.uint8 and len(given) != len(tensor)):
            # Parts of narrowed rows are neither cut nor repeated: they would be mixed up.
            tensor.fill_(tensor.dtype.is_floating_point)
        else:
            times = -(-tensor.numel() // given.numel())
            tensor.copy_(given.reshape(-1).repeat(times)[: tensor.numel()].view(tensor.shape))
            if numbers:  # of nodes that are there, and -1: here they are all different
                self._columns = 1 + int(given.max())
                there = tensor >= 0
                tensor[there] = torch.arange(int(there.sum()), dtype=torch.int32)

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        if self.size > 1 and tensor.numel():
            tensor.copy_(torch.empty_like(tensor).copy_(tensor))  # a transport's copies
            self.ledger.add(kind, messages=1, bytes_sent=tensor.nbytes, bytes_received=tensor.nbytes)
            self.summed = self.summed[0] + 1, self.summed[1] + tensor.nbytes
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        self.ledger.add("control", messages=2, bytes_sent=8 + len(self.to_bytes(value)))  # how long it is, and itself
        return [value] * self.size

    def gather_object(self, value: Any, root: int = 0) -> list[Any]:
        return self.allgather_object(value)


_SEED = 1


@dataclass(frozen=True)
class CopyDirection:
    """One direction of the edges of a rank.

    Attributes:
        own, remote: numbers of edges.
        received, sent: numbers of rows.
        most: rows of the rank that receives, or sends, most.
    """

    own: int
    remote: int
    received: int
    sent: int
    most: int


@dataclass(frozen=True)
class Size:
    """The share of one rank.

    Attributes:
        outer: nodes with an edge from or to another rank.
        entries: stored features of a node, if features are sparse.
        loops: nodes with an edge to themselves.
        outward: None for an undirected graph.
    """

    ranks: int
    nodes: int
    train: int
    outer: int
    inward: CopyDirection
    outward: CopyDirection | None
    entries: float = 0.0
    loops: int = 0

    def scaled(self, factor: float) -> "Size":
        """The same rank, smaller."""

        def part(value: int) -> int:
            return max(min(value, 1), round(value * factor))

        def direction(of: CopyDirection) -> CopyDirection:
            return CopyDirection(*(part(value) for value in vars(of).values()))

        nodes = max(1, part(self.nodes))
        return replace(
            self,
            nodes=nodes,
            train=min(nodes, max(1, part(self.train))),
            outer=min(nodes, part(self.outer)),
            inward=direction(self.inward),
            outward=None if self.outward is None else direction(self.outward),
            loops=min(nodes, part(self.loops)),
        )


def make_copy(size: Size, degrees: np.ndarray, plan: RunPlan, cap: int, comm: GhostCommunicator) -> LocalGraph:
    """Return the LocalGraph of a rank of this size.

    Args:
        size: the rank's numbers.
        degrees: int, degrees of a sample of nodes, by which rows get edges.
        plan: of the run.
        cap, comm: see `load_local_graph`.
    """
    draw, spec, config = np.random.default_rng(_SEED), plan.spec, plan.config
    share = draw.choice(degrees, size.nodes).astype(np.float64) + 1e-3

    def adjacency(of: CopyDirection) -> Adjacency:
        edges = _edges(of, size, share, spec, draw)
        _let_want(comm, of, size.outer)
        how = config.data.self_loops, spec.dtype, plan.reads_edges, spec.edge_types
        return build_adjacency(edges, LocalOrder(), comm, _cap(of, cap), *how)

    inward = adjacency(size.inward)
    outward = inward if size.outward is None else adjacency(size.outward)
    comm.wanted.clear()
    split = np.full(size.nodes, SPLITS["test"], np.uint8)
    split[draw.permutation(size.nodes)[: size.train]] = SPLITS["train"]
    local = made_up(spec, config.task.task, inward, outward, size.entries)
    held = local.features.to(spec.held) if spec.held and isinstance(local.features, torch.Tensor) else local.features
    return replace(local, split=torch.from_numpy(split), features=held)


def _cap(of: CopyDirection, cap: int) -> int:
    """Rows of a round that make as many rounds of this rank's rows as that with most has of `cap` rows."""
    rounds = max(1, -(-of.most // cap))
    return max(1, -(-max(of.received, of.sent) // rounds))


def _edges(of: CopyDirection, size: Size, share: np.ndarray, spec: ModelSpec, draw: np.random.Generator) -> FoundEdges:
    """Draw the edges of a rank.

    Owned edges connect all rows, first the `loops` self loops of the first rows. Remote edges end in the first `outer`
    rows, and use each halo row at least once.
    """
    n, outer = size.nodes, max(1, min(size.nodes, size.outer))
    loops = (np.arange(n) < min(size.loops, of.own)).astype(np.int64)
    own, remote = loops + _dealt(of.own - int(loops.sum()), share, draw), np.zeros(n, np.int64)
    if of.remote:
        remote[:outer] = 1 if of.remote >= outer else 0
        remote[:outer] += _dealt(of.remote - int(remote.sum()), share[:outer], draw)
    counts = own + remote
    indptr = np.concatenate([[0], np.cumsum(counts)])
    total = int(indptr[-1])
    owner = np.zeros(total, np.min_scalar_type(max(1, size.ranks - 1)))
    local_id = draw.integers(0, max(1, n), total).astype(np.int32)
    local_id[indptr[:-1][loops > 0]] = np.flatnonzero(loops)
    # The last edges of a row are the remote ones.
    ends = segments(indptr[1:] - remote, remote)
    received = min(of.received, of.remote)
    ids = np.concatenate([np.arange(received), draw.integers(0, max(1, received), of.remote - received)])
    owner[ends], local_id[ends] = size.ranks - 1, draw.permutation(ids)
    weight = np.ones(total, np.float32) if spec.weighted else None
    kinds = draw.integers(0, spec.edge_types, total).astype(np.int32) if spec.edge_types else None
    return FoundEdges(indptr, owner, local_id, weight, kinds)


def _dealt(edges: int, share: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Distribute `edges` edges over rows by their shares, int64."""
    exact = share * (edges / share.sum())
    counts = np.floor(exact).astype(np.int64)
    rest = edges - int(counts.sum())
    counts[draw.permutation(len(counts))[:rest]] += 1
    return counts


def _let_want(comm: GhostCommunicator, of: CopyDirection, outer: int) -> None:
    """Let the peer at ring offset 1 ask for the rows that the rank sends."""
    if comm.size > 1:
        rows = np.sort(np.arange(of.sent) % max(1, outer)) if of.sent > outer else np.arange(of.sent)
        comm.wanted[1] = torch.from_numpy(rows.astype(np.int32))
