"""Held-out edges that come with a graph file, and their negatives, each on the rank that owns its target.

The file names nodes by their original ids, and no rank knows the place of all of them. So each rank keeps the owners
and local numbers of one range of ids. It reads an equal share of the pairs, and asks the keepers for the places of
their nodes. Then it sends each pair to the owner of its target, some at a time. From then on pairs are edges like all
others, and the rows of their sources stream along them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.errors import FormatError
from hpcgnn.graph.blocks import own_block
from hpcgnn.graph.local import Adjacency, with_halo
from hpcgnn.graph.split import RemoteEdges
from hpcgnn.graphfile.given_links import EACH, EDGES, HELD, NEGATIVES, NONE, SHARED, TARGETS, name_of
from hpcgnn.graphfile.original_order import OriginalOrder, read_in_original_order, share_of
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.order import LocalOrder

# Pairs that a rank reads and sends at a time.
_PIECE = 1 << 18
# (first row, one past the last) -> (sources, targets, numbers) int64 (m,) of the pairs of these rows of a dataset.
_Read = Callable[[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


class GivenSplit:
    """In place of a LinkSplit: the held-out edges come with the file."""


@dataclass(frozen=True)
class GivenPairs:
    """Held-out edges of a graph file.

    Attributes:
        held, negatives: {split: the pairs whose targets are own nodes}. `Block.edge` is a pair's number among the
            held-out edges of the split; a negative has its pair's.
        known: further known edges, for drawing negatives.
    """

    held: Mapping[str, Adjacency] = field(default_factory=dict)
    negatives: Mapping[str, Adjacency] = field(default_factory=dict)
    known: tuple[Adjacency, ...] = ()


def read_given(file: GraphFile, original_id: torch.Tensor, cap: int, comm: Communicator) -> GivenPairs:
    """The held-out edges of a graph file. Collective. Raises FormatError, on all ranks, for damage.

    original_id: int64 (n_p,), of own nodes in the local order. cap: rows of a round.
    """
    with comm.ledger.booked_as("plan"):
        places = _Places(original_id, file.meta.num_nodes, comm)
        reader = PairReader(file)

        def placed(split: str, part: str, read: _Read, each: int = 1) -> Adjacency:
            rows = file.shape(name_of(split, part))[0] if name_of(split, part) in file else 0
            return _placed(read, rows, each, places, len(original_id), cap, comm)

        held = {split: placed(split, EDGES, reader.pairs(split, EDGES)) for split in HELD}
        negatives: dict[str, Adjacency] = {}
        if file.meta.negatives == SHARED:
            negatives = {split: placed(split, NEGATIVES, reader.pairs(split, NEGATIVES)) for split in HELD}
        elif file.meta.negatives == EACH:
            for split in HELD:
                width = file.shape(name_of(split, TARGETS))[1] if name_of(split, TARGETS) in file else 1
                negatives[split] = placed(split, TARGETS, reader.targets(split, width), width)
        known: tuple[Adjacency, ...] = ()
        if file.meta.negatives == NONE and file.meta.undirected:  # an edge of these goes both ways
            known = tuple(placed(split, EDGES, reader.pairs(split, EDGES, turned=True)) for split in HELD)
        return GivenPairs(held, negatives, known)


class PairReader:
    """Rows of the datasets of held-out pairs in a file. Raises FormatError for nodes that there are not."""

    def __init__(self, file: GraphFile) -> None:
        self._file = file

    def _nodes(self, name: str, first: int, last: int) -> np.ndarray:
        nodes = self._file.read(name, [(first, last)], np.int64)
        if nodes.size and not 0 <= nodes.min() <= nodes.max() < self._file.meta.num_nodes:
            raise FormatError(
                f"{self._file.path}: {name} leave the nodes 0..{self._file.meta.num_nodes - 1}; the file is corrupted, "
                "import it again"
            )
        return nodes

    def pairs(self, split: str, part: str, turned: bool = False) -> _Read:
        """Of pairs of nodes; turned: with their ends exchanged."""

        def read(first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            source, target = self._nodes(name_of(split, part), first, last).T
            return (target, source, np.arange(first, last)) if turned else (source, target, np.arange(first, last))

        return read

    def targets(self, split: str, width: int) -> _Read:
        """Of the `width` nodes in place of the target of each edge."""

        def read(first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            sources = self._nodes(name_of(split), first, last)[:, 0]
            targets = self._nodes(name_of(split, TARGETS), first, last).reshape(-1)
            return np.repeat(sources, width), targets, np.repeat(np.arange(first, last), width)

        return read


class _Places:
    """Where nodes are, by their original ids: each rank keeps a range of ids. Made collectively."""

    def __init__(self, original_id: torch.Tensor, num_nodes: int, comm: Communicator) -> None:
        count = len(original_id)
        at = torch.stack([torch.full((count,), comm.rank), torch.arange(count)], 1).int()
        order = OriginalOrder({"at": at}, original_id, num_nodes, comm)
        parts = [torch.from_numpy(rows["at"]) for _, (_, rows) in order.own_slabs()]
        self._kept = torch.cat([at[:0], *parts])
        self._num_nodes, self._comm = num_nodes, comm

    def of(self, ids: np.ndarray) -> np.ndarray:
        """int32 (m, 2): the owner of each node, and which of its own the node is. Collective."""
        wanted = torch.from_numpy(ids)
        return read_in_original_order(lambda start, stop: self._kept, wanted, self._num_nodes, self._comm).numpy()


def _placed(
    read: _Read, rows: int, each: int, places: _Places, num_owned: int, cap: int, comm: Communicator
) -> Adjacency:
    """The pairs of a dataset that end at own nodes. rows: of the dataset; each: pairs of a row. Collective."""
    start, stop = share_of(comm.rank, rows, comm)
    step = max(1, _PIECE // max(1, each))
    found = [np.zeros((0, 4), np.int64)]
    for begin in range(0, share_of(0, rows, comm)[1], step):  # nobody has more than rank 0
        with comm.together("reading held-out edges"):
            source, target, number = read(min(stop, start + begin), min(stop, start + begin + step))
        at, count = places.of(np.concatenate([target, source])), len(target)
        owner, row = at[:count].T
        sent = np.stack([row, *at[count:].T, number], 1).astype(np.int64)
        found.append(to_owners(sent, owner, comm))
    pairs = np.concatenate(found)
    del found
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    row, owner, local_id = pairs[:, :3].astype(np.int32).T.copy()
    numbers = torch.from_numpy(pairs[:, 3].copy())
    del pairs
    degree = torch.from_numpy(np.bincount(row, minlength=num_owned).astype(np.float64))
    mine = owner == comm.rank
    own = own_block(num_owned, row[mine], local_id[mine], None, numbers[torch.from_numpy(mine)])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[~mine], minlength=num_owned))])
    away = RemoteEdges(indptr, owner[~mine], local_id[~mine], None, numbers[torch.from_numpy(~mine)])
    return Adjacency(*with_halo(own, away, num_owned, num_owned, cap, comm, LocalOrder()), degree)


def placed_pairs(
    pairs: np.ndarray, original_id: torch.Tensor, num_nodes: int, cap: int, comm: Communicator
) -> Adjacency:
    """The pairs of rank 0, each on the rank that owns its target; `Block.edge` is its row. Collective.

    pairs: int64 (m, 2), by original ids; none on other ranks. original_id, cap: see `read_given`.
    """
    with comm.ledger.booked_as("plan"):
        count = comm.broadcast_object(len(pairs))
        starts = [share_of(rank, count, comm)[0] for rank in range(comm.size)]
        mine = to_owners(pairs, np.searchsorted(starts, np.arange(len(pairs)), side="right") - 1, comm)
        begin = starts[comm.rank]

        def read(first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            source, target = mine[first - begin : last - begin].T
            return source, target, np.arange(first, last)

        return _placed(read, count, 1, _Places(original_id, num_nodes, comm), len(original_id), cap, comm)


def to_owners(rows: np.ndarray, owner: np.ndarray, comm: Communicator) -> np.ndarray:
    """The rows (m, C) that came; each row of each rank goes to its owner. Collective."""
    counts = np.bincount(owner, minlength=comm.size)
    parts = torch.from_numpy(rows[np.argsort(owner, kind="stable")]).split(counts.tolist())
    coming = comm.alltoall(torch.from_numpy(counts), "plan").tolist()
    arrived = [parts[0].new_empty(count, rows.shape[1]) for count in coming]
    arrived[comm.rank] = parts[comm.rank]
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    sent = [(rank, parts[rank]) for rank in others if len(parts[rank])]
    comm.exchange(sent, [(rank, arrived[rank]) for rank in others if len(arrived[rank])], "plan").finish()
    return torch.cat(arrived).numpy()
