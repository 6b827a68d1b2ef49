"""How many rows each rank receives from each: the different nodes at the ends of edges, or least covers of these."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.estimate.counts.between_nodes import Nodes
from hpcgnn.exchange.rounds import Rounds, Segment, Sides, cut, segments

# Rows of a rank are numbered from 0; those of a node are not.
_OF_A_RANK = 1 << 32


@dataclass(frozen=True)
class HaloCounts:
    """The number of rows between each pair of ranks, for one direction of the edges, or a layer's part of it.

    Attributes:
        ranks: P.
        receiver, offset, rows: int64 (pairs,), for pairs with rows to send, by receiver. The sender is receiver -
            offset (modulo P).
        nodes: the Nodes in place of ranks, if nodes exchange rows; P is then their number. None for ranks.
    """

    ranks: int
    receiver: np.ndarray
    offset: np.ndarray
    rows: np.ndarray
    nodes: Nodes | None = None

    @cached_property
    def received(self) -> np.ndarray:
        """int64 (P,): the halo rows of each rank."""
        return np.bincount(self.receiver, self.rows, self.ranks).astype(np.int64)

    @cached_property
    def sent(self) -> np.ndarray:
        """int64 (P,): the rows that each rank sends."""
        return np.bincount((self.receiver - self.offset) % self.ranks, self.rows, self.ranks).astype(np.int64)

    @cached_property
    def peers(self) -> np.ndarray:
        """int64 (P,): from how many ranks each receives."""
        return np.bincount(self.receiver, minlength=self.ranks)

    @cached_property
    def takers(self) -> np.ndarray:
        """int64 (P,): to how many ranks each sends."""
        return np.bincount((self.receiver - self.offset) % self.ranks, minlength=self.ranks)

    @cached_property
    def most(self) -> np.ndarray:
        """int64 (P - 1,): by ring offset, the most rows that any rank receives."""
        found = np.zeros(self.ranks, np.int64)
        np.maximum.at(found, self.offset, self.rows)
        return found[1:]

    @cached_property
    def largest(self) -> int:
        """The most rows that any rank receives, or sends."""
        return int(max(self.received.max(initial=0), self.sent.max(initial=0)))

    def crossing(self, per_node: int) -> "HaloCounts":
        """Return the pairs of ranks on different nodes, of so many consecutive ranks each."""
        sender = (self.receiver - self.offset) % self.ranks
        away = sender // per_node != self.receiver // per_node
        return replace(self, receiver=self.receiver[away], offset=self.offset[away], rows=self.rows[away])

    def scaled(self, factor: float) -> "HaloCounts":
        """Return all counts times a factor."""
        rows = np.rint(self.rows * factor).astype(np.int64)
        return replace(self, receiver=self.receiver[rows > 0], offset=self.offset[rows > 0], rows=rows[rows > 0])

    @property
    def adjoint(self) -> "HaloCounts":
        """As many rows the other way."""
        sender = (self.receiver - self.offset) % self.ranks
        order = np.argsort(sender, kind="stable")
        return replace(self, receiver=sender[order], offset=(self.ranks - self.offset)[order], rows=self.rows[order])

    @property
    def pairs(self) -> list[Segment]:
        """All rows of each ring offset in one piece."""
        return [Segment(k + 1, 0, most) for k, most in enumerate(self.most.tolist()) if most]

    def rounds(self, cap: int) -> Rounds:
        """The rounds that the ranks agree on for buffers of `cap` rows."""
        stops = cut(self.sides.furthest, self.largest, cap, self.ranks)
        return Rounds(segments(stops, self.most.tolist()), self.sides.sizes(stops).tolist())

    @cached_property
    def sides(self) -> Sides:
        """Return the rows that each rank receives, and those it sends."""
        sender = (self.receiver - self.offset) % self.ranks
        side = np.concatenate([self.receiver, self.ranks + sender])
        return Sides(side, np.tile(self.offset, 2), np.tile(self.rows, 2), 2 * self.ranks, self.ranks)


class Needs:
    """Collects the different nodes that each rank receives, by the rank that they come from. between: Nodes that stand
    for ranks, or None.
    """

    def __init__(self, ranks: int, between: Nodes | None = None) -> None:
        self._ranks, self._between = ranks if between is None else between.number, between
        self._found = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        self._pending, self._node = list[tuple[np.ndarray, ...]](), 0

    def add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        """Edges from nodes of these owners into rows of a rank: (E,) each. Ranks come in ascending order."""
        if self._between is None:
            self._add(rank, owner, nodes, rows)
            return
        node, of = rank // self._between.per_node, owner // self._between.per_node
        if node != self._node:
            self._end_node()
        self._node, away = node, of != node
        self._pending.append((of[away], nodes[away], rows[away].astype(np.int64) + rank * _OF_A_RANK))

    def _end_node(self) -> None:
        """All edges of a node are there."""
        if self._pending:
            parts, self._pending = self._pending, []
            self._add(self._node, *(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        _, first = np.unique(nodes, return_index=True)
        counts = np.bincount((rank - owner[first].astype(np.int64)) % self._ranks, minlength=self._ranks)
        offsets = np.flatnonzero(counts)
        self._found.append((np.full(len(offsets), rank), offsets, counts[offsets]))

    def counts(self) -> HaloCounts:
        """The rows, where all that are needed travel."""
        self._end_node()
        return _joined(self._ranks, self._found, self._between)


class Covers(Needs):
    """Also collects the sizes of least covers of the edges between ranks (graph/transforms/vertex_cover.py)."""

    def __init__(self, ranks: int, between: Nodes | None = None) -> None:
        super().__init__(ranks, between)
        self._fewest = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()

    def _add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        super()._add(rank, owner, nodes, rows)
        if len(nodes) == 0:
            return
        offset = (rank - owner.astype(np.int64)) % self._ranks
        order = np.lexsort((rows, nodes, offset))
        nodes, rows = nodes[order], rows[order]
        offsets, firsts = np.unique(offset[order], return_index=True)
        sizes = [_cover(*each) for each in zip(np.split(nodes, firsts[1:]), np.split(rows, firsts[1:]), strict=False)]
        self._fewest.append((np.full(len(offsets), rank), offsets, np.array(sizes, np.int64)))

    def fewest(self) -> HaloCounts:
        """The rows and sums of rows, where the fewest travel."""
        self._end_node()
        return _joined(self._ranks, self._fewest, self._between)


def _cover(nodes: np.ndarray, rows: np.ndarray) -> int:
    """The size of a least cover of these edges (E,), which are ordered by nodes."""
    _, firsts = np.unique(nodes, return_index=True)
    ends, indices = np.unique(rows, return_inverse=True)
    indptr = torch.from_numpy(np.append(firsts, len(nodes)).astype(np.int64))
    return kernels.least_cover(indptr, torch.from_numpy(indices.astype(np.int32)), len(ends))[0]


def _joined(
    ranks: int, found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], between: Nodes | None
) -> HaloCounts:
    parts = zip(*found, strict=True) if found else [[np.zeros(0, np.int64)]] * 3
    receiver, offset, rows = (np.concatenate(part) for part in parts)
    return HaloCounts(ranks, receiver, offset, rows, between)
