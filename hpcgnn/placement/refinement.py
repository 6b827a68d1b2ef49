"""A map of clusters to ranks under refinement: several weights balanced at once, few edges between ranks.

In the manner of Fiduccia and Mattheyses (DAC 1982) a cluster goes to the rank that it has most edges with. Balance is
first a price, then a bound. In `settle` what a rank holds above its share costs the square of the excess, at a rate
that rises from pass to pass, so that clusters find their places while the bound is soft: a map that is far from
balance in one weight can only be mended by many moves, each of which alone would break another bound. Then `balance`
moves and swaps until no rank is above the bound, if it can, and `reduce_cut` mends the cut inside it.
"""

import numpy as np

MAX_IMBALANCE = 1.03  # of a weight alone, and of the first of several
LOOSE_IMBALANCE = 1.095  # of the others
MARGIN = 0.01  # the price begins a little inside the bound
RATES = 0.1, 0.5, 2.0, 8.0, 32.0, 128.0  # of an excess of a whole share squared, in mean edges of a rank
PASSES = 10
MOST_PAIRS = 1 << 21  # of clusters that are looked at for one swap

Graph = tuple[np.ndarray, np.ndarray, np.ndarray]
"""indptr int64 (K + 1,), indices int64 (nnz,), edge weights int64 (nnz,): symmetric, without a diagonal."""


class Assignment:
    """A map, the loads of its ranks and what improves them. Connections are computed when they are asked for, so memory
    stays O(K + edges of the cluster graph + ranks).
    """

    def __init__(self, parts: np.ndarray, sizes: np.ndarray, graph: Graph, num_ranks: int) -> None:
        """parts: int64 (K,), changed in place. sizes: float64 (K, m) in shares of a rank: each column sums to
        num_ranks.
        """
        self.parts, self.sizes, self.num_ranks = parts, sizes, num_ranks
        self.indptr, self.indices, self.weights = graph
        self.loads = np.stack([np.bincount(parts, column, num_ranks) for column in sizes.T], axis=1)
        self.members = np.bincount(parts, minlength=num_ranks)
        largest = sizes.max(axis=0)
        bounds = np.full(len(largest), LOOSE_IMBALANCE)
        bounds[0] = MAX_IMBALANCE
        self.limit, self.soft = np.maximum(bounds, largest), np.maximum(bounds - MARGIN, largest)

    def cost(self) -> tuple[float, int]:
        """What makes one map better than another: balance up to the limit, then the cut."""
        row = np.repeat(np.arange(len(self.parts)), np.diff(self.indptr))
        cut = self.weights[self.parts[row] != self.parts[self.indices]].sum()
        return max(float((self.loads / self.limit).max()), 1.0 + 1e-9), int(cut)

    def connections(self, cluster: int | np.integer) -> np.ndarray:
        """Edges from a cluster to each rank, float64 (P,)."""
        edges = slice(self.indptr[cluster], self.indptr[cluster + 1])
        return np.bincount(self.parts[self.indices[edges]], self.weights[edges], self.num_ranks)

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
                if not self._pass_with_price(random, rate * unit):
                    break

    def _pass_with_price(self, random: np.random.Generator, price: float) -> int:
        moved = 0
        paid = _excess(self.loads, self.soft)
        for cluster in random.permutation(len(self.sizes)):
            home, size = self.parts[cluster], self.sizes[cluster]
            if self.members[home] == 1:
                continue
            links = self.connections(cluster)
            gains = links - price * (_excess(self.loads + size, self.soft) - paid)
            gains[home] = links[home] - price * (paid[home] - _excess(self.loads[home] - size, self.soft))
            best = int(np.argmax(gains))
            if gains[best] > gains[home] + 1e-9 * abs(gains[home]):
                self.move(cluster, best)
                paid[[home, best]] = _excess(self.loads[[home, best]], self.soft)
                moved += 1
        return moved

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
        gains = np.stack([self.connections(cluster) for cluster in clusters])
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
            for cluster in random.permutation(len(self.sizes)):
                home = self.parts[cluster]
                if self.members[home] == 1:
                    continue
                links = self.connections(cluster)
                here = links[home]
                links[(self.loads + self.sizes[cluster] > limit).any(axis=1)] = -1
                best = int(np.argmax(links))
                if links[best] > here and best != home:
                    self.move(cluster, best)
                    moved += 1
            if not moved:
                break


def _excess(loads: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """What loads (..., m) are above the limit, squared and summed: (...)."""
    above = np.maximum(loads - limit, 0)
    return np.einsum("...m,...m->...", above, above)
