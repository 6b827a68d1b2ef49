"""A map of clusters to ranks under refinement: several weights balanced at once, few edges between ranks.

In the manner of Fiduccia and Mattheyses (DAC 1982) a cluster goes to the rank that it has most edges with. Balance is
first a price, then a bound. In `settle` a rank pays for the square of its excess over its share, at a rate that rises
from pass to pass. So clusters find their places while the bound is soft. Only many moves mend a map far from balance in
one weight, and each alone would break another bound. Then `balance` moves and swaps until no rank is above the bound,
if it can. `reduce_cut` mends the cut inside it. No rank gives its last clusters for fewer edges: it would be idle.

Passes judge a batch of clusters together, because one call of numpy for many clusters costs little more than one for a
single cluster. Gains in edges are those before the batch. A batch is a small part of many clusters, so few neighbours
are in one. The balance is checked again at every move.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hpcgnn.graphfile.ranges import segments

MAX_IMBALANCE = 1.03  # of a weight alone, and of the first of several
LOOSE_IMBALANCE = 1.095  # of the others
LEAST = 0.25  # the mean of the weights of a rank that gives clusters for fewer edges
MARGIN = 0.01  # the price begins a little inside the bound
RATES = 0.1, 0.5, 2.0, 8.0, 32.0, 128.0  # of an excess of a whole share squared, in mean edges of a rank
PASSES = 10
FEW_MOVES = 1 / 256  # of the clusters: a pass with fewer is the last of its kind
BATCHES, FEWEST, MOST_LOOKED_AT = 64, 8, 1 << 18  # batches of a pass; clusters of a batch, at least; those times ranks
MOST_PAIRS = 1 << 21  # of clusters that are looked at for one swap

Graph = tuple[np.ndarray, np.ndarray, np.ndarray]
"""indptr int64 (K + 1,), indices int64 (nnz,), edge weights int64 (nnz,): symmetric, without a diagonal."""
_Loads = list[float]


def bounds(count: int) -> np.ndarray:
    """The bounds of several weights of a rank, in shares: float64 (count,)."""
    return np.array([MAX_IMBALANCE] + [LOOSE_IMBALANCE] * (count - 1))


class Assignment:
    """A map, the loads of its ranks and its improvements. Memory: that of the graph."""

    def __init__(self, parts: np.ndarray, sizes: np.ndarray, graph: Graph, num_ranks: int) -> None:
        """Args:
        parts: int64 (K,), changed in place.
        sizes: float64 (K, m) in shares of a rank, none above its bound (`shares_of`).
        graph: the graph of the clusters.
        num_ranks: P.
        """
        self.parts, self.sizes, self.num_ranks = parts, sizes, num_ranks
        self.num_edges = int(graph[2].sum())
        self.graph = graph
        self.loads = np.stack([np.bincount(parts, column, num_ranks) for column in sizes.T], axis=1)
        self.members = np.bincount(parts, minlength=num_ranks)
        self.limit = bounds(sizes.shape[1])
        self.soft = self.limit - MARGIN

    def cost(self) -> tuple[float, float]:
        """The order of maps: (excess of the heaviest rank over the limit, edges between ranks times those of the
        busiest rank).
        """
        cut = cuts(self.parts, self.graph, self.num_ranks).prod()
        return max(float((self.loads / self.limit).max()), 1.0 + 1e-9), float(cut)

    def edges_of(self, clusters: np.ndarray) -> np.ndarray:
        """Edges from clusters (B,) to each rank: float64 (B, P)."""
        indptr, indices, weights = self.graph
        counts, cells = indptr[clusters + 1] - indptr[clusters], len(clusters) * self.num_ranks
        edges = segments(indptr[clusters], counts)
        cell = np.repeat(np.arange(0, cells, self.num_ranks), counts) + self.parts[indices[edges]]
        found = np.bincount(cell, weights[edges], cells).astype(np.float64, copy=False)
        return found.reshape(-1, self.num_ranks)

    def _batches(self, random: np.random.Generator) -> Iterator[tuple[np.ndarray, ...]]:
        """All clusters in random order, some at a time.

        Yields (clusters int64 (B,), their edges to each rank float64 (B, P), their ranks, and their edges to those).
        """
        order = random.permutation(len(self.sizes))
        size = max(1, min(max(len(order) // BATCHES, FEWEST), MOST_LOOKED_AT // self.num_ranks))
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            links, homes = self.edges_of(batch), self.parts[batch]
            yield batch, links, homes, links[np.arange(len(batch)), homes]

    def move(self, cluster: int | np.integer, rank: int | np.integer) -> None:
        """Give a cluster to a rank."""
        old = self.parts[cluster]
        self.loads[old] -= self.sizes[cluster]
        self.loads[rank] += self.sizes[cluster]
        self.members[old] -= 1
        self.members[rank] += 1
        self.parts[cluster] = rank

    def _move_all(self, clusters: np.ndarray, ranks: np.ndarray, pays: Callable[[int, _Loads, _Loads], bool]) -> int:
        """Give clusters (B,) to ranks (B,), one after another. No rank gives below LEAST, or its last one. Returns how
        many moved.

        pays(i, loads of its present rank, loads of its new rank) -> whether move i is still right.
        """
        homes, sizes = self.parts[clusters].tolist(), self.sizes[clusters].tolist()
        loads, members, moved = self.loads.tolist(), self.members.tolist(), []
        for one, (home, rank, size) in enumerate(zip(homes, ranks.tolist(), sizes, strict=True)):
            drained = members[home] == 1 or sum(loads[home]) - sum(size) < LEAST * len(size)
            if drained or not pays(one, loads[home], loads[rank]):
                continue
            loads[home] = [load - each for load, each in zip(loads[home], size, strict=True)]
            loads[rank] = [load + each for load, each in zip(loads[rank], size, strict=True)]
            members[home] -= 1
            members[rank] += 1
            moved.append(one)
        self.loads[:], self.members[:] = loads, members
        self.parts[clusters[moved]] = ranks[moved]
        return len(moved)

    def fill_empty_ranks(self) -> None:
        """Give each rank without a cluster the lightest one of the rank with the most clusters."""
        for rank in np.flatnonzero(self.members == 0):
            clusters = np.flatnonzero(self.parts == np.argmax(self.members))
            self.move(clusters[np.argmin(self.sizes[clusters].sum(axis=1))], rank)

    def settle(self, random: np.random.Generator) -> None:
        """Passes over the clusters in random order with balance as a price."""
        unit = self.num_edges / self.num_ranks or 1.0
        for rate in RATES:
            for _ in range(2):
                if self._pass_with_price(random, rate * unit) <= FEW_MOVES * len(self.sizes):
                    break

    def _pass_with_price(self, random: np.random.Generator, price: float) -> int:
        total = 0
        for batch, links, homes, here in self._batches(random):
            left = _excess(self.loads[homes], self.soft)
            left -= _excess(self.loads[homes] - self.sizes[batch], self.soft)
            # Only more edges elsewhere, or an excess at home, can pay for a move.
            some = np.flatnonzero((links.max(axis=1) > here) | (left > 0))
            if len(some):
                total += self._move_for_price(batch[some], links[some], left[some], price)
        return total

    def _move_for_price(self, clusters: np.ndarray, gains: np.ndarray, left: np.ndarray, price: float) -> int:
        """Move the clusters (B,) whose gain in edges pays. Returns how many moved.

        gains: their edges to each rank, float64 (B, P), which are changed. left: the excess that they take with them.
        """
        homes, every = self.parts[clusters], np.arange(len(clusters))
        here = gains[every, homes]
        gains -= here[:, None]
        linked = gains.copy()
        gains -= price * (self._excess_with(clusters) - _excess(self.loads, self.soft))
        gains[every, homes] = -np.inf
        best = np.argmax(gains, axis=1)
        least = 1e-9 * np.abs(here) + 1e-300
        wanted = np.flatnonzero(gains[every, best] + price * left > least)
        if not len(wanted):
            return 0
        gain, need = linked[wanted, best[wanted]].tolist(), least[wanted].tolist()
        sizes, bounds = self.sizes[clusters[wanted]].tolist(), self.soft.tolist()

        def pays(one: int, mine: _Loads, others: _Loads) -> bool:
            change = 0.0
            for size, soft, home, there in zip(sizes[one], bounds, mine, others, strict=True):
                change += max(there + size - soft, 0.0) ** 2 - max(there - soft, 0.0) ** 2
                change += max(home - size - soft, 0.0) ** 2 - max(home - soft, 0.0) ** 2
            return gain[one] - price * change > need[one]

        return self._move_all(clusters[wanted], best[wanted], pays)

    def _excess_with(self, clusters: np.ndarray) -> np.ndarray:
        """The excess of each rank if it had each of these clusters too: float64 (B, P)."""
        found = np.zeros((len(clusters), self.num_ranks))
        for column, soft in enumerate(self.soft):
            above = self.sizes[clusters, column, None] + (self.loads[:, column] - soft)
            np.maximum(above, 0, out=above)
            found += np.square(above, out=above)
        return found

    def balance(self) -> None:
        """Move, or else swap, clusters of the heaviest rank until it is within the limit; then of the next one where it
        cannot be made lighter.

        Each step lowers a load without making a lighter one as heavy, so it ends.
        """
        stuck = np.zeros(self.num_ranks, bool)
        for _ in range(4 * len(self.sizes)):
            loads = np.where(stuck[:, None], 0, self.loads / self.limit)
            heavy, weight = map(int, np.unravel_index(np.argmax(loads), loads.shape))
            if loads[heavy, weight] <= 1 + 1e-9:
                break
            stuck[heavy] = not (self._move_from(heavy, weight) or self._swap_from(heavy, weight))

    def _move_from(self, heavy: int, weight: int) -> bool:
        clusters = np.flatnonzero((self.parts == heavy) & (self.sizes[:, weight] > 0))
        if self.members[heavy] < 2 or not len(clusters):
            return False
        # The worst load of each rank with each cluster, in shares of the limit.
        after = ((self.loads + self.sizes[clusters, None]) / self.limit).max(axis=2)
        after[:, heavy] = np.inf
        fits = after <= 1
        if not fits.any():
            least = after.min()
            if least >= (self.loads[heavy, weight] / self.limit[weight]) * (1 - 1e-9):
                return False
            fits = after <= least
        gains = self.edges_of(clusters)
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
        surplus = self.sizes[mine, None] - self.sizes[others]
        theirs = self.loads[self.parts[others]] + surplus
        worse = (np.maximum(self.loads[heavy] - surplus, theirs) / self.limit).max(axis=2)
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
        limits = self.limit.tolist()
        for _ in range(PASSES):
            moved = 0
            for batch, links, homes, here in self._batches(random):
                some = np.flatnonzero(links.max(axis=1) > here)
                clusters, links, homes, here = batch[some], links[some], homes[some], here[some]
                for column, most in enumerate(limits):
                    links[self.sizes[clusters, column, None] > most - self.loads[:, column]] = -1
                best = np.argmax(links, axis=1)
                wanted = np.flatnonzero((links[np.arange(len(some)), best] > here) & (best != homes))
                fits = functools.partial(_fits, self.sizes[clusters[wanted]].tolist(), limits)
                moved += self._move_all(clusters[wanted], best[wanted], fits)
            if moved <= FEW_MOVES * len(self.sizes):
                break


def refined(starts: Iterable[np.ndarray], sizes: np.ndarray, graph: Graph, num_ranks: int, seed: int) -> np.ndarray:
    """Refine each start, and return the best of the maps: int64 (K,). For the arguments see `Assignment`.

    With one weight starts often are in balance already, and then better without `settle`.
    """
    found = []
    for start, settle in itertools.product(starts, (True, False) if sizes.shape[1] == 1 else (True,)):
        random = np.random.Generator(np.random.PCG64(seed))
        state = Assignment(start.copy(), sizes, graph, num_ranks)
        state.fill_empty_ranks()
        if settle:
            state.settle(random)
        state.balance()
        state.reduce_cut(random)
        found.append(state)
    return min(found, key=Assignment.cost).parts


def external_edges(parts: np.ndarray, graph: Graph) -> np.ndarray:
    """Edges between each cluster and other ranks: float64 (K,)."""
    indptr, indices, weights = graph
    row = np.repeat(np.arange(len(parts)), np.diff(indptr))
    return np.bincount(row, weights * (parts[row] != parts[indices]), len(parts)).astype(np.float64, copy=False)


def cuts(parts: np.ndarray, graph: Graph, num_ranks: int) -> np.ndarray:
    """Edges between ranks, float64 (2,): of all ranks, and of the rank with most."""
    of_rank = np.bincount(parts, external_edges(parts, graph), num_ranks)
    return np.array([of_rank.sum(), of_rank.max()], np.float64)


def _excess(loads: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Excess of loads (..., m) over the limit, squared and summed: (...)."""
    above = np.maximum(loads - limit, 0)
    return np.einsum("...m,...m->...", above, above)


def _fits(sizes: list[_Loads], bounds: _Loads, one: int, mine: _Loads, others: _Loads) -> bool:
    """Whether a cluster, number `one` of some, fits the bounds of the rank that gets it."""
    return all(load + size <= bound for load, size, bound in zip(others, sizes[one], bounds, strict=True))
