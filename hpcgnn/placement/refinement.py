"""A map of clusters to ranks under refinement: several weights balanced at once, few edges between ranks.

In the manner of Fiduccia and Mattheyses (DAC 1982) a cluster goes to the rank that it has most edges with. Balance is
first a price, then a bound. In `settle` a rank pays for the square of its excess over its share, at a rate that rises
from pass to pass. So clusters find their places while the bound is soft. Only many moves mend a map far from balance in
one weight, and each alone would break another bound. Then `balance` moves and swaps until no rank is above the bound,
if it can. `reduce_cut` mends the cut inside it.

Passes judge a batch of clusters together, because one call of numpy for many clusters costs little more than one for a
single cluster. Gains in edges are those before the batch. A batch is a small part of the clusters, so few neighbours
are in one. The balance is checked again at every move.

Where several ranks are on a node, an edge between nodes counts for two: once between ranks, and once between nodes.
A node is in balance where its ranks are.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from hpcgnn.graphfile.ranges import segments

MAX_IMBALANCE = 1.03  # of a weight alone, and of the first of several
LOOSE_IMBALANCE = 1.095  # of the others
MARGIN = 0.01  # the price begins a little inside the bound
RATES = 0.1, 0.5, 2.0, 8.0, 32.0, 128.0  # of an excess of a whole share squared, in mean edges of a rank
PASSES = 10
FEW_MOVES = 1 / 256  # of the clusters: a pass with fewer is the last of its kind
BATCHES, MOST_LOOKED_AT = 64, 1 << 18  # batches of a pass; clusters times ranks of a batch
MOST_PAIRS = 1 << 21  # of clusters that are looked at for one swap

Graph = tuple[np.ndarray, np.ndarray, np.ndarray]
"""indptr int64 (K + 1,), indices int64 (nnz,), edge weights int64 (nnz,): symmetric, without a diagonal."""


class Assignment:
    """A map, the loads of its ranks and its improvements.

    Connections are computed on request, so memory stays O(K + edges of the cluster graph + ranks).
    """

    def __init__(
        self,
        parts: np.ndarray,
        sizes: np.ndarray,
        graph: Graph,
        num_ranks: int,
        per_node: int = 1,
        allowance: float = 1.0,
    ) -> None:
        """Args:
        parts: int64 (K,), changed in place.
        sizes: float64 (K, m) in shares of a rank, so each column sums to about num_ranks.
        graph: the graph of the clusters.
        num_ranks: P.
        per_node: consecutive ranks on a node, a divisor of num_ranks.
        allowance: part of the usual imbalance that is allowed.
        """
        self.parts, self.sizes, self.num_ranks, self.per_node = parts, sizes, num_ranks, per_node
        self.indptr, self.indices, self.weights = graph
        self.loads = np.stack([np.bincount(parts, column, num_ranks) for column in sizes.T], axis=1)
        self.members = np.bincount(parts, minlength=num_ranks)
        largest = sizes.max(axis=0)
        bounds = np.full(len(largest), LOOSE_IMBALANCE)
        bounds[0] = MAX_IMBALANCE
        bounds = 1 + allowance * (bounds - 1)
        self.limit, self.soft = np.maximum(bounds, largest), np.maximum(bounds - allowance * MARGIN, largest)

    def cost(self) -> tuple[float, int]:
        """The order of maps: (excess of the heaviest rank over the limit, edges between ranks). Edges between nodes
        count for two.
        """
        mine = np.repeat(self.parts, np.diff(self.indptr))
        others = self.parts[self.indices]
        cut = self.weights[mine != others].sum()
        if self.per_node > 1:
            cut += self.weights[mine // self.per_node != others // self.per_node].sum()
        return max(float((self.loads / self.limit).max()), 1.0 + 1e-9), int(cut)

    def connections(self, clusters: np.ndarray) -> np.ndarray:
        """Edges from clusters (B,) to each rank, plus those to all ranks of its node: float64 (B, P)."""
        counts = self.indptr[clusters + 1] - self.indptr[clusters]
        edges = segments(self.indptr[clusters], counts)
        cells = np.repeat(np.arange(len(clusters)) * self.num_ranks, counts) + self.parts[self.indices[edges]]
        found = np.bincount(cells, self.weights[edges], len(clusters) * self.num_ranks).astype(np.float64, copy=False)
        if self.per_node > 1:
            found += np.repeat(found.reshape(-1, self.per_node).sum(axis=1), self.per_node)
        return found.reshape(-1, self.num_ranks)

    def _batches(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        """All clusters in random order, some at a time: int64 (B,)."""
        order = random.permutation(len(self.sizes))
        size = max(1, min(len(order) // BATCHES, MOST_LOOKED_AT // self.num_ranks))
        for first in range(0, len(order), size):
            yield order[first : first + size]

    def move(self, cluster: int | np.integer, rank: int | np.integer) -> None:
        """Give a cluster to a rank."""
        old = self.parts[cluster]
        self.loads[old] -= self.sizes[cluster]
        self.loads[rank] += self.sizes[cluster]
        self.members[old] -= 1
        self.members[rank] += 1
        self.parts[cluster] = rank

    def fill_empty_ranks(self) -> None:
        """Give each rank without a cluster the lightest one of the rank with the most clusters."""
        for rank in np.flatnonzero(self.members == 0):
            clusters = np.flatnonzero(self.parts == np.argmax(self.members))
            self.move(clusters[np.argmin(self.sizes[clusters].sum(axis=1))], rank)

    def settle(self, random: np.random.Generator) -> None:
        """Passes over the clusters in random order with balance as a price."""
        unit = self.weights.sum() / self.num_ranks or 1.0
        for rate in RATES:
            for _ in range(2):
                if self._pass_with_price(random, rate * unit) <= FEW_MOVES * len(self.sizes):
                    break

    def _pass_with_price(self, random: np.random.Generator, price: float) -> int:
        moved = 0
        for clusters in self._batches(random):
            gains, homes, every = self.connections(clusters), self.parts[clusters], np.arange(len(clusters))
            here = gains[every, homes]
            gains -= here[:, None]
            linked = gains.copy()
            gains -= price * (self._excess_with(clusters) - _excess(self.loads, self.soft))
            gains[every, homes] = -np.inf
            best = np.argmax(gains, axis=1)
            left = _excess(self.loads[homes], self.soft)
            left -= _excess(self.loads[homes] - self.sizes[clusters], self.soft)
            least = 1e-9 * np.abs(here) + 1e-300
            wanted = np.flatnonzero(gains[every, best] + price * left > least)
            for one in wanted:
                moved += self._move_if_it_pays(clusters[one], best[one], linked[one, best[one]], price, least[one])
        return moved

    def _excess_with(self, clusters: np.ndarray) -> np.ndarray:
        """The excess of each rank if it had each of these clusters too: float64 (B, P)."""
        found = np.zeros((len(clusters), self.num_ranks))
        for column, soft in enumerate(self.soft):
            above = self.sizes[clusters, column, None] + (self.loads[:, column] - soft)
            np.maximum(above, 0, out=above)
            found += np.square(above, out=above)
        return found

    def _move_if_it_pays(self, cluster: np.integer, rank: np.integer, links: float, price: float, least: float) -> bool:
        """Move a cluster if the gain in edges pays the price at the present loads. Returns whether it moved."""
        home, change = self.parts[cluster], 0.0
        if self.members[home] == 1:
            return False
        columns = self.sizes[cluster], self.soft, self.loads[home], self.loads[rank]
        for size, soft, mine, others in zip(*(column.tolist() for column in columns), strict=True):
            change += max(others + size - soft, 0.0) ** 2 - max(others - soft, 0.0) ** 2
            change += max(mine - size - soft, 0.0) ** 2 - max(mine - soft, 0.0) ** 2
        if links - price * change <= least:
            return False
        self.move(cluster, rank)
        return True

    def balance(self) -> None:
        """Move, or else swap, clusters of the heaviest rank until it is within the limit or cannot be made lighter.

        Each step lowers the heaviest load without making another one as heavy, so it ends.
        """
        for _ in range(4 * len(self.sizes)):
            heavy, weight = np.unravel_index(np.argmax(self.loads / self.limit), self.loads.shape)
            if self.loads[heavy, weight] <= self.limit[weight] * (1 + 1e-9):
                break
            if not (self._move_from(int(heavy), int(weight)) or self._swap_from(int(heavy), int(weight))):
                break

    def _move_from(self, heavy: int, weight: int) -> bool:
        clusters = np.flatnonzero((self.parts == heavy) & (self.sizes[:, weight] > 0))
        if self.members[heavy] < 2 or not len(clusters):
            return False
        # The worst load of each rank with each cluster, in shares of the limit.
        after = np.zeros((len(clusters), self.num_ranks))
        for column in range(self.sizes.shape[1]):
            loads = self.loads[None, :, column] + self.sizes[clusters, column, None]
            np.maximum(after, loads / self.limit[column], out=after)
        after[:, heavy] = np.inf
        fits = after <= 1
        if not fits.any():
            least = after.min()
            if least >= (self.loads[heavy, weight] / self.limit[weight]) * (1 - 1e-9):
                return False
            fits = after <= least
        gains = self.connections(clusters)
        gains -= gains[:, [heavy]]
        gains = np.where(fits, gains / self.sizes[clusters, weight, None], -np.inf)
        best = int(np.argmax(gains))
        self.move(clusters[best // self.num_ranks], best % self.num_ranks)
        return True

    def _swap_from(self, heavy: int, weight: int) -> bool:
        """Exchange two clusters so that the heavier of the two ranks becomes as light as it can."""
        mine = np.flatnonzero(self.parts == heavy)
        lightest = np.argsort(self.loads[:, weight], kind="stable")
        pairs = np.cumsum(self.members[lightest]) * len(mine)
        partners = np.zeros(self.num_ranks, bool)
        partners[lightest[: max(int(np.searchsorted(pairs, MOST_PAIRS)), 1)]] = True
        partners[heavy] = False
        others = np.flatnonzero(partners[self.parts])
        if not len(others):
            return False
        worse = np.zeros((len(mine), len(others)))
        for column, limit in enumerate(self.limit):
            surplus = self.sizes[mine, column, None] - self.sizes[None, others, column]
            theirs = self.loads[self.parts[others], column][None, :] + surplus
            np.maximum(worse, np.maximum(self.loads[heavy, column] - surplus, theirs) / limit, out=worse)
        best = int(np.argmin(worse))
        if worse.flat[best] >= (self.loads[heavy, weight] / self.limit[weight]) * (1 - 1e-9):
            return False
        one, other = mine[best // len(others)], others[best % len(others)]
        rank = self.parts[other]
        self.move(one, rank)
        self.move(other, heavy)
        return True

    def reduce_cut(self, random: np.random.Generator) -> None:
        """Passes over the clusters in random order; each goes to the rank it has most edges with, where balance
        allows.
        """
        limit = np.maximum(self.limit, self.loads.max(axis=0))
        for _ in range(PASSES):
            moved = 0
            for clusters in self._batches(random):
                links, homes, every = self.connections(clusters), self.parts[clusters], np.arange(len(clusters))
                here = links[every, homes]
                for column, most in enumerate(limit):
                    links[self.sizes[clusters, column, None] > most - self.loads[:, column]] = -1
                best = np.argmax(links, axis=1)
                for one in np.flatnonzero((links[every, best] > here) & (best != homes)):
                    cluster, rank = clusters[one], best[one]
                    fits = (self.loads[rank] + self.sizes[cluster] <= limit).all()
                    if fits and self.members[homes[one]] > 1:
                        self.move(cluster, rank)
                        moved += 1
            if moved <= FEW_MOVES * len(self.sizes):
                break


def refined(
    starts: Iterable[np.ndarray],
    sizes: np.ndarray,
    graph: Graph,
    num_ranks: int,
    seed: int,
    per_node: int = 1,
    allowance: float = 1.0,
    balanced: bool = False,
) -> np.ndarray:
    """Refine each start, and return the best of the maps: int64 (K,). For the arguments see `Assignment`.

    balanced: the starts may be in balance already, and then better without `settle`. With one weight they often are.
    """
    best: tuple[tuple[float, int], np.ndarray] | None = None
    for start, settle in itertools.product(starts, (True, False) if balanced or sizes.shape[1] == 1 else (True,)):
        random = np.random.Generator(np.random.PCG64(seed))
        state = Assignment(start.copy(), sizes, graph, num_ranks, per_node, allowance)
        state.fill_empty_ranks()
        if settle:
            state.settle(random)
        state.balance()
        state.reduce_cut(random)
        cost = state.cost()
        if best is None or cost < best[0]:
            best = cost, state.parts
    assert best is not None
    return best[1]


def _excess(loads: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Excess of loads (..., m) over the limit, squared and summed: (...)."""
    above = np.maximum(loads - limit, 0)
    return np.einsum("...m,...m->...", above, above)
