"""What every rank of a job with very many ranks makes before it trains, one rank after another in one process.

The real functions make it (`build_adjacency`, `Stream`), over a communicator that knows what all others would say: all
ranks are asked once which rows they want, and are then made with the answers.
"""

import contextlib
import time

import numpy as np
import torch

from hpcgnn.comm import Communicator, Finished
from hpcgnn.comm.health.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger
from hpcgnn.estimate.counts.halo_counts import HaloCounts
from hpcgnn.exchange.rounds import cut
from hpcgnn.graph.load import read_edges
from hpcgnn.graph.local import build_adjacency
from hpcgnn.placement.order import find_ends, interior_last
from hpcgnn.placement.ownership import Ownership


class Heard(Exception):
    """A rank has said which rows it wants."""


class Others(Communicator):
    """All other ranks, as far as halo plans need them: the same collectives in the same order for every rank.

    `begin(rank)` comes before the calls of a rank, `direction` before each plan. At first it listens, and ends
    the making of a plan by Heard; after `answer` it says what all ranks together say. Rows that are streamed are
    counted and not sent.
    """

    def __init__(self, size):
        self.rank, self.size, self.ledger, self.heartbeat = 0, size, Ledger(), Heartbeat()
        self._wanted, self._rows, self._answers = [{}, {}], [{}, {}], []

    def begin(self, rank):
        """Be all but this one from now on."""
        self.rank = rank

    def direction(self, index):
        """The next plan is that of this direction of the edges."""
        self._direction = index
        self._left = {verb: list(said) for verb, said in self._answers[index].items()} if self._answers else {}

    def answer(self, cap):
        """All have been heard. cap: rows of a round."""
        self._answers = [self._agreed(wanted, cap) for wanted in self._wanted if wanted]
        self._wanted = [_by_owner(wanted, self.size) for wanted in self._wanted if wanted]

    def _agreed(self, wanted, cap):
        """What the reductions of a plan give, by operation: the first ones, and then the places where rounds end."""
        receiver = np.concatenate([np.full(len(owners), rank) for rank, (owners, _) in wanted.items()])
        owner, rows = (np.concatenate(part).astype(np.int64) for part in zip(*wanted.values(), strict=True))
        halo = HaloCounts(self.size, receiver, (receiver - owner) % self.size, rows)
        places, sides = [], halo.sides

        def furthest(place, rows):
            places.append(sides.furthest(place, rows))
            return places[-1]

        stops = cut(furthest, halo.largest, cap, self.size)
        return {"max": [halo.most, halo.largest, sides.sizes(stops)], "min": places}

    def together(self, what, on_one=False):
        """No other rank fails."""
        return contextlib.nullcontext()

    def allreduce_(self, tensor, kind, op="sum"):
        return tensor.copy_(torch.as_tensor(self._left[op].pop(0)))

    def alltoall(self, numbers, kind):
        result = torch.zeros_like(numbers)
        if self._answers:
            askers, counts = self._wanted[self._direction][self.rank]
            result[torch.from_numpy(askers).long()] = torch.from_numpy(counts)
        else:
            there = numbers.nonzero()[:, 0]
            self._wanted[self._direction][self.rank] = there.numpy().astype(np.int32), numbers[there].numpy()
        return result

    def exchange(self, outgoing, incoming, kind):
        if kind != "plan":
            sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
            self.ledger.add(kind, messages=len(outgoing), bytes_sent=sent, bytes_received=received)
            return Finished()
        said = self._rows[self._direction]
        if not self._answers:
            for rank, rows in outgoing:
                said[self.rank, rank] = rows.numpy().copy()
            raise Heard
        for rank, tensor in incoming:
            tensor.copy_(torch.from_numpy(said[rank, self.rank]))
        return Finished()


def _by_owner(wanted, size):
    """[(askers, numbers)] by owner, from {asker: (owners, numbers)}."""
    askers = np.concatenate([np.full(len(owners), asker, np.int32) for asker, (owners, _) in wanted.items()])
    owners, numbers = (np.concatenate(part) for part in zip(*wanted.values(), strict=True))
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=size))[:-1]
    return list(zip(np.split(askers[order], ends), np.split(numbers[order], ends), strict=True))


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
        self.comm.answer(cap)

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
        for index, edges in enumerate(directions):
            self.comm.direction(index)
            with contextlib.suppress(Heard):
                made.append(build_adjacency(edges, order, self.comm, self.cap, "keep", torch.float32))
        return made, time.thread_time() - start
