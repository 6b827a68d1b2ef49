"""What every rank of a job with very many ranks makes before it trains, one rank after another in one process.

The real functions make it (`build_adjacency`, `Stream`), over a communicator that knows what all others would say: all
ranks are asked once which rows they want, and are then made with the answers.
"""

import contextlib
import time

import numpy as np
import torch

from hpcgnn.comm import Communicator, Finished
from hpcgnn.comm.ledger import Ledger
from hpcgnn.comm.pulse import Pulse
from hpcgnn.graph.load import read_edges
from hpcgnn.graph.local import build_adjacency
from hpcgnn.placement.order import find_ends, interior_last
from hpcgnn.placement.ownership import Ownership


class Heard(Exception):
    """A rank has said which rows it wants."""


class Others(Communicator):
    """All other ranks, as far as halo plans need them: the same collectives in the same order for every rank.

    `begin(rank)` comes before a rank's calls. At first it listens, and ends the making of a plan by Heard; after
    `answer` it says what was said. Rows that are streamed are counted and not sent.
    """

    def __init__(self, size):
        self.rank, self.size, self.ledger, self.pulse = 0, size, Ledger(), Pulse()
        self._listening, self._call = True, {}
        self._reduced, self._numbers, self._rows = [], [], []

    def begin(self, rank):
        """Be all but this one from now on."""
        self.rank, self._call = rank, {"allreduce": 0, "alltoall": 0, "exchange": 0}

    def answer(self):
        """All have been heard."""
        self._listening = False
        self._numbers = [_by_receiver(said, self.size) for said in self._numbers]

    def _next(self, verb, calls, empty):
        """What is known of this call of the verb."""
        index = self._call[verb]
        self._call[verb] += 1
        if index == len(calls):
            assert self._listening, "a collective that no rank was heard to call"
            calls.append(empty())
        return calls[index]

    def allreduce_(self, tensor, kind, op="sum"):
        assert op == "max", "no plan needs another"
        known = self._next("allreduce", self._reduced, lambda: {"value": tensor.clone()})
        if self._listening:
            known["value"] = torch.maximum(known["value"], tensor)
        else:
            tensor.copy_(known["value"])
        return tensor

    def alltoall(self, numbers, kind):
        said = self._next("alltoall", self._numbers, dict)
        if self._listening:
            there = numbers.nonzero()[:, 0]
            said[self.rank] = there.numpy().astype(np.int32), numbers[there].numpy()
            return torch.zeros_like(numbers)
        result = torch.zeros_like(numbers)
        senders, counts = said[self.rank]
        result[torch.from_numpy(senders).long()] = torch.from_numpy(counts)
        return result

    def exchange(self, outgoing, incoming, kind):
        if kind != "plan":
            sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
            self.ledger.add(kind, messages=len(outgoing), bytes_sent=sent, bytes_received=received)
            return Finished()
        said = self._next("exchange", self._rows, dict)
        if self._listening:
            for rank, rows in outgoing:
                said[self.rank, rank] = rows.numpy().copy()
            raise Heard
        for rank, tensor in incoming:
            tensor.copy_(torch.from_numpy(said[rank, self.rank]))
        return Finished()


def _by_receiver(said, size):
    """[(senders, numbers)] by receiver, from {sender: (receivers, numbers)}."""
    senders = np.concatenate([np.full(len(to), sender, np.int32) for sender, (to, _) in said.items()])
    receivers, numbers = (np.concatenate(part) for part in zip(*said.values()))
    order = np.argsort(receivers, kind="stable")
    ends = np.cumsum(np.bincount(receivers, minlength=size))[:-1]
    return list(zip(np.split(senders[order], ends), np.split(numbers[order], ends)))


class Rehearsal:
    """The ranks of a job. file: GraphFile; cluster_to_rank: its map; cap: rows of a round.

    Making one listens to all ranks.
    """

    def __init__(self, file, cluster_to_rank, ranks, cap):
        self._file, self.ranks, self.cap, self.comm = file, ranks, cap, Others(ranks)
        nodes = file.meta.num_nodes
        single = len(cluster_to_rank) == nodes != file.meta.num_clusters
        offsets = np.arange(nodes + 1) if single else file.read("clusters/offsets", dtype=np.int64)
        self.ownership = Ownership(offsets, cluster_to_rank, ranks)
        for rank in range(ranks):
            self._make(rank)
        self.comm.answer()

    def make(self, rank):
        """(Adjacency of the in-edges, processor seconds that making the adjacencies took) of a rank."""
        made, seconds = self._make(rank)
        return made[0], seconds

    def _make(self, rank):
        ranges = self.ownership.ranges(rank)
        suffixes = [""] if self._file.meta.undirected else ["", "_out"]
        directions = [find_ends(read_edges(self._file, suffix, ranges, False), self.ownership) for suffix in suffixes]
        self.comm.begin(rank)
        start, order, made = time.thread_time(), interior_last(directions, rank), []
        for edges in directions:
            with contextlib.suppress(Heard):
                made.append(build_adjacency(edges, order, self.comm, self.cap, "keep", torch.float32))
        return made, time.thread_time() - start
