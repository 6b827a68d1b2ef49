"""Held-out edges that come with a graph file, and their negatives, each on the rank that owns its target.

The file names nodes by their original ids, and no rank knows the place of all of them. So each rank keeps the owners
and local numbers of one range of ids. It reads an equal share of the pairs, and asks the keepers for the places of
their nodes. Then it sends each pair to the owner of its target, some at a time. From then on pairs are edges like all
others, and the rows of their sources stream along them.
"""

import numpy as np
import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import FormatError
from hpcgnn.graph.blocks import own_block
from hpcgnn.graph.load import TaskEdges
from hpcgnn.graph.local import Adjacency, with_halo
from hpcgnn.graph.split import RemoteEdges
from hpcgnn.graphfile.given_links import EACH, EDGES, HELD, NEGATIVES, SHARED, TARGETS, name_of
from hpcgnn.graphfile.original_order import OriginalOrder, read_in_original_order, share_of
from hpcgnn.graphfile.storage import GraphFile

# Pairs that a rank reads and sends at a time.
_PIECE = 1 << 18
#: The name of a split's further known edges, for drawing negatives; those of its negatives begin with their kind.
KNOWN = "known {}"


def negatives_of(kind: str, split: str) -> str:
    """The name of a split's negatives of a kind."""
    return f"{kind} {split}"


class GivenTaskEdges(TaskEdges):
    """The held-out edges of each split, its negatives, and further known edges.

    `Block.edge` is a pair's number among the held-out edges of the split; a negative has its pair's.
    """

    def read(self, file: GraphFile, original_id: torch.Tensor, cap: int, comm: Communicator) -> dict[str, Adjacency]:
        """Raises FormatError, on all ranks, for damage."""
        kind, found = file.meta.negatives, dict[str, Adjacency]()
        with comm.ledger.booked_as("plan"):
            places = _PairPlaces(original_id, file.meta.num_nodes, comm)
            for split in HELD:
                found[split] = _placed(file, split, EDGES, places, cap)
                if kind in (SHARED, EACH):
                    part = NEGATIVES if kind == SHARED else TARGETS
                    found[negatives_of(kind, split)] = _placed(file, split, part, places, cap)
                elif file.meta.undirected:  # an edge of these goes both ways
                    found[KNOWN.format(split)] = _placed(file, split, EDGES, places, cap, turned=True)
        return found


def _read(file: GraphFile, split: str, part: str, first: int, last: int) -> tuple[np.ndarray, ...]:
    """(sources, targets, numbers) int64 (m,) of rows of a dataset of pairs, or of nodes in place of the targets of
    edges. Raises FormatError for nodes that there are not.
    """
    found = []
    for name in (name_of(split, part), *([name_of(split)] if part == TARGETS else [])):
        nodes = file.read(name, [(first, last)], np.int64)
        if nodes.size and not 0 <= nodes.min() <= nodes.max() < file.meta.num_nodes:
            raise FormatError(
                f"{file.path}: {name} leave the nodes 0..{file.meta.num_nodes - 1}; the file is corrupted, import it "
                "again"
            )
        found.append(nodes)
    number = np.arange(first, last)
    if part != TARGETS:
        return (*found[0].T, number)
    each = found[0].shape[1]
    return np.repeat(found[1][:, 0], each), found[0].reshape(-1), np.repeat(number, each)


class _PairPlaces:
    """Where nodes are, by their original ids: each rank keeps a range of ids. Made collectively. num_owned: own
    nodes.
    """

    def __init__(self, original_id: torch.Tensor, num_nodes: int, comm: Communicator) -> None:
        self.num_owned, self.comm, self._num_nodes = len(original_id), comm, num_nodes
        at = torch.stack([torch.full((self.num_owned,), comm.rank), torch.arange(self.num_owned)], 1).int()
        self._kept = OriginalOrder({"at": at}, original_id, num_nodes, comm).kept["at"]

    def of(self, ids: np.ndarray) -> np.ndarray:
        """int32 (m, 2): the owner of each node, and which of its own the node is. Collective."""
        wanted = torch.from_numpy(ids)
        return read_in_original_order(lambda start, stop: self._kept, wanted, self._num_nodes, self.comm).numpy()


def _placed(file: GraphFile, split: str, part: str, places: _PairPlaces, cap: int, turned: bool = False) -> Adjacency:
    """The pairs of a dataset that end at own nodes. turned: with their ends exchanged. Collective."""
    num_owned, comm = places.num_owned, places.comm
    rows, each = file.shape(name_of(split, part)) if name_of(split, part) in file else (0, 1)
    start, stop = share_of(comm.rank, rows, comm)
    step = max(1, _PIECE // max(1, each if part == TARGETS else 1))
    found = [np.zeros((0, 4), np.int64)]
    for begin in range(0, share_of(0, rows, comm)[1], step):  # nobody has more than rank 0
        with comm.together("reading held-out edges"):
            ends = _read(file, split, part, min(stop, start + begin), min(stop, start + begin + step))
        source, target = ends[1::-1] if turned else ends[:2]
        at, count = places.of(np.concatenate([target, source])), len(target)
        owner, row = at[:count].T
        sent = np.stack([row, *at[count:].T, ends[2]], 1).astype(np.int64)
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
    return Adjacency(*with_halo(own, away, num_owned, num_owned, cap, comm), degree)


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
