"""Steps on shares of the clusters, counted from the graph file for `hpcgnn estimate`.

The functions of a run choose the rows of a step (share_rows.py), for the whole graph.
Memory holds eight bytes for each node, layer and direction, and the indices of one rank.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from hpcgnn.comm import SoloCommunicator
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.shares import ShareCounter
from hpcgnn.estimate.traffic import HaloCounts, Needs, Place
from hpcgnn.exchange.rounds import Rounds
from hpcgnn.exchange.stream import Use
from hpcgnn.extras.steps.options import options_of
from hpcgnn.extras.steps.share_rows import Draws, rows_of_layers, rows_of_shares
from hpcgnn.extras.steps.shares import deal
from hpcgnn.graph.own_rows import read_indptr, read_original_id
from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.graphfile.storage import SLAB_ROWS
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.plan.run_plan import RunPlan

Counted = dict[Place, HaloCounts]
# Clusters of a copy for each step of an epoch.
CLUSTERS = 4


class AtOnce(HaloCounts):
    """Counts of rows that each pair of ranks sends in one message, whatever the buffers are."""

    def rounds(self, cap: int) -> Rounds:
        """See HaloCounts."""
        return Rounds([tuple(self.pairs)], [self.largest]) if self.pairs else Rounds([], [])


class Steps:
    """The steps of an epoch under a plan, as OwnSteps. exact: see `check_graph`; counter: of the file and the map."""

    def __init__(self, exact: bool, counter: ShareCounter, plan: RunPlan) -> None:
        self._counter, self._plan, self._solo = counter, plan, SoloCommunicator()
        self._random, options = Randomness(plan.config.run.seed), options_of(plan.config)
        sizes = np.diff(counter.file.read("clusters/offsets", dtype=np.int64))
        self._cluster = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self._train, self._exact = counter.trained_on(), exact
        counted = torch.from_numpy(self._train) if self._exact else None
        key = self._random.key(Purpose.SHARE, 0)
        share, self.least = deal(torch.from_numpy(self._cluster), options.steps, key, self._solo, counted)
        if self.least < options.steps:
            raise ConfigError(
                f"--steps {options.steps}: the clusters of {plan.config.data.graph} make {self.least} shares alone, "
                f"and estimate counts --steps {self.least}; expected that, or a file that is partitioned into more "
                "clusters"
            )
        self._share, self._within = share.numpy(), self._inside()

    def _inside(self) -> float:
        """The share of own edges whose ends are in the same cluster."""
        within = own = 0
        for rank in range(self._counter.ranks):
            for indices, owner, ends in self._edges(rank):
                within += int(np.count_nonzero(self._cluster[indices] == self._cluster[ends]))
                own += int(np.count_nonzero(owner == rank))
        return within / max(1, own)

    def arranged(self, nodes: np.ndarray) -> "Clusters":
        """See OwnSteps."""
        return Clusters(nodes, CLUSTERS * self.least, self._within)

    def uses(self, of_copy: Mapping[Place, Tally[Use]]) -> dict[Place, Tally[Use]]:
        """See OwnSteps. The steps differ in their rows alone, so the first one of a copy stands for all."""
        found: dict[Place, Tally[Use]] = {}
        for (part, direction), used in of_copy.items():
            if not isinstance(part, tuple):
                found[part, direction] = used
            elif part[1] == 0:
                found |= {((part[0], step), direction): used for step in range(self.least)}
        return found

    def halos(self, worthwhile: list[float], prunable: int) -> Counted:
        """See OwnSteps."""
        first, layers = int(self._plan.spec.keeps_input), len(worthwhile)
        return (self._of_batches if self._exact else self._of_shares)(first, layers, prunable)

    def _of_batches(self, first: int, layers: int, prunable: int) -> Counted:
        """Each step computes all that its training nodes depend on."""
        found: Counted = {}
        for step in range(self.least):
            outputs = self._train & (self._share == step)
            for layer in reversed(range(max(first, layers - prunable), layers)):
                inputs = np.ones_like(outputs)
                if layer > 0 and layer > layers - prunable:
                    inputs = outputs | (self._edges_to(torch.from_numpy(outputs)).numpy() > 0)
                halo = self._counter.halo(inputs, outputs)
                found[(layer, step), "inward"], found[(layer, step), "outward"] = halo
                outputs = inputs
        return found

    def _of_shares(self, first: int, layers: int, prunable: int) -> Counted:
        """Each step computes the rows of its share, and their gradients go back along the edges within it."""
        rows, found = self._rows(layers, prunable), Counted()
        for layer in range(first, layers):
            for step, halo in enumerate(self._crossing(rows[layer], rows[layer + 1])):
                found[(layer, step), "inward"], found[(layer, step), "outward"] = halo
        return found

    def _rows(self, layers: int, prunable: int) -> list[list[np.ndarray]]:
        """Of `rows_of_shares`, for the whole graph in the order of the file."""
        extra, ids = options_of(self._plan.config).extra_rows, torch.zeros(0, dtype=torch.int64)
        if extra:
            ids = read_original_id(self._counter.file, [(0, len(self._train))])
        reach = rows_of_layers(torch.from_numpy(self._train), layers, prunable, self._edges_to)
        draws, share = Draws(self._random, ids, self._solo), torch.from_numpy(self._share)
        found = rows_of_shares(share, reach, prunable, self._edges_to, draws, self.least, extra)
        return [[rows.numpy() for rows in each] for each in found]

    def _crossing(self, taken: list[np.ndarray], computed: list[np.ndarray]) -> list[tuple[HaloCounts, HaloCounts]]:
        """[(rows that cross, gradients that cross)] of a layer in each step, from the rows that it takes and computes
        there.
        """
        nodes, ranks = len(self._train), self._counter.ranks
        forth, back = ([Needs(ranks) for _ in taken] for _ in range(2))
        any_ = np.zeros(nodes, bool)
        any_[np.concatenate(computed)] = True
        for rank in range(ranks):
            for indices, owner, ends in self._edges(rank):
                away = (owner != rank) & any_[ends]
                indices, owner, ends = indices[away], owner[away], ends[away]
                columns, firsts = np.unique(indices, return_index=True)
                for step, (takes, makes) in enumerate(zip(taken, computed, strict=True)):
                    fresh, made = np.zeros(nodes, bool), np.zeros(nodes, bool)
                    fresh[takes], made[makes] = True, True
                    sent = fresh[columns]
                    forth[step].add(rank, owner[firsts][sent], columns[sent], columns[sent])
                    within = fresh[indices] & made[ends]
                    back[step].add(rank, owner[within], indices[within], ends[within])
        counts = ((one.counts(), other.counts().adjoint) for one, other in zip(forth, back, strict=True))
        return [(_at_once(one), _at_once(other)) for one, other in counts]

    def _edges(self, rank: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(sources, their owners, ends) of a rank's in-edges, in the order of the file."""
        ranges = self._counter.ownership.ranges(rank)
        if ranges:
            places = np.concatenate([np.arange(*each) for each in ranges])
            yield from (
                (indices, owner, places[rows]) for indices, owner, rows in self._counter.edges("", rank, ranges)
            )

    def _edges_to(self, rows: torch.Tensor) -> torch.Tensor:
        """int64 (n,): edges from each node to nodes in `rows`, bool (n,)."""
        file, nodes = self._counter.file, len(rows)
        counts = np.zeros(nodes, np.int64)
        for first in range(0, nodes, SLAB_ROWS):
            indptr, spans = read_indptr(file, "topology", [(first, min(nodes, first + SLAB_ROWS))])
            ends = first + edge_rows(indptr, 0, int(indptr[-1]))
            counts += np.bincount(np.asarray(file.read("topology/indices", spans))[rows.numpy()[ends]], minlength=nodes)
        return torch.from_numpy(counts)


def _at_once(of: HaloCounts) -> AtOnce:
    return AtOnce(of.ranks, of.receiver, of.offset, of.rows)


class Clusters:
    """Clusters of a copy, of as many nodes and training nodes each, several for each step.

    cluster: int32 (n,); training_first: int64 (n,), the nodes, training nodes first; count: of clusters; inside: the
    share of own edges whose ends are in the same cluster.
    """

    def __init__(self, training_first: np.ndarray, count: int, inside: float) -> None:
        self.training_first, self._inside, n = training_first, inside, len(training_first)
        self._count = min(n, count)
        cluster = np.empty(n, np.int32)
        cluster[training_first] = np.arange(n) % self._count
        self.cluster = torch.from_numpy(cluster)

    def draw_near(self, ends: np.ndarray, other: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """The nodes `other`; the share inside comes from the cluster of the row at the other end."""
        cluster = self.cluster.numpy()[ends]
        sizes = -(-(len(self.training_first) - cluster) // self._count)
        near = self.training_first[cluster + self._count * (draw.random(len(ends)) * sizes).astype(np.int64)]
        return np.where(draw.random(len(ends)) < self._inside, near, other).astype(other.dtype)
