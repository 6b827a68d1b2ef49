"""What each rank of a job will hold and receive, counted from the graph file and a map, one rank after another.

Nothing is trained. In memory are the indices of one rank and some bytes for each of its nodes; for layers that compute
some rows only, a byte for each node of the graph and layer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.exchange.rounds import Rounds, Sides, cut, segments
from hpcgnn.graph.least import saves
from hpcgnn.graph.load import read_indptr
from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.graphfile.storage import SLAB_ROWS, GraphFile
from hpcgnn.placement.ownership import Ownership

# Nodes whose degrees stand for all.
SAMPLE = 1 << 16


Locality = tuple[np.ndarray, np.ndarray]
NONE: Locality = (np.array([1.0]), np.array([1.0]))


@dataclass(frozen=True)
class HaloCounts:
    """How many rows each rank receives from each: of one direction of the edges, or of what a layer needs of it.

    ranks: P. receiver, offset, rows: int64 (pairs,), of the pairs of ranks that have anything to send, by receiver; the
    sender is receiver - offset (modulo P).
    """

    ranks: int
    receiver: np.ndarray
    offset: np.ndarray
    rows: np.ndarray

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

    def scaled(self, factor: float) -> "HaloCounts":
        """So much of each."""
        rows = np.rint(self.rows * factor).astype(np.int64)
        return HaloCounts(self.ranks, self.receiver[rows > 0], self.offset[rows > 0], rows[rows > 0])

    @property
    def adjoint(self) -> "HaloCounts":
        """As many rows the other way."""
        sender = (self.receiver - self.offset) % self.ranks
        order = np.argsort(sender, kind="stable")
        return HaloCounts(self.ranks, sender[order], (self.ranks - self.offset)[order], self.rows[order])

    def rounds(self, cap: int) -> Rounds:
        """The rounds that the ranks agree on for buffers of `cap` rows."""
        stops = cut(self.sides.furthest, self.largest, cap, self.ranks)
        return Rounds(segments(stops, self.most.tolist()), self.sides.sizes(stops).tolist())

    @cached_property
    def sides(self) -> Sides:
        """What each rank receives, and what each sends."""
        sender = (self.receiver - self.offset) % self.ranks
        side = np.concatenate([self.receiver, self.ranks + sender])
        return Sides(side, np.tile(self.offset, 2), np.tile(self.rows, 2), 2 * self.ranks, self.ranks)


@dataclass(frozen=True)
class Shares:
    """What the ranks of a job hold. All arrays: (P,).

    nodes; train: nodes of the training split; outer: nodes with an edge from or to another rank; loops: nodes with an
    edge to themselves; own, remote: in-edges from own nodes and from others'. own_out, remote_out: out-edges likewise.
    inward, outward: HaloCounts of the directions, the same for an undirected graph; map_rows: halo rows of all ranks,
    which may be more than the rows that travel. degrees: in-degrees of a sample of all nodes. entries: stored features
    of a node in the mean, where features are sparse. locality: (rows (m,), shares (m,)) rising and falling: so large is
    the share of edges whose source is not among that many different sources before it. entry_locality,
    column_locality: the same of the columns of stored features, node by node, and of their nodes, column by column.
    """

    nodes: np.ndarray
    train: np.ndarray
    outer: np.ndarray
    loops: np.ndarray
    own: np.ndarray
    remote: np.ndarray
    own_out: np.ndarray
    remote_out: np.ndarray
    inward: HaloCounts
    outward: HaloCounts
    map_rows: int
    degrees: np.ndarray
    entries: float = 0.0
    locality: Locality = NONE
    entry_locality: Locality = NONE
    column_locality: Locality = NONE

    @property
    def ranks(self) -> int:
        return len(self.nodes)

    @property
    def directed(self) -> bool:
        return self.outward is not self.inward


class Counter:
    """Counts what the ranks of a graph file and a map receive.

    cluster_to_rank: int32 (K,), or (n,) for single nodes. halo: 'rows', 'least' or 'auto', see --halo.
    """

    def __init__(self, file: GraphFile, cluster_to_rank: np.ndarray, ranks: int, halo: str = "rows") -> None:
        nodes = file.meta.num_nodes
        single = len(cluster_to_rank) == nodes != file.meta.num_clusters
        offsets = np.arange(nodes + 1) if single else file.read("clusters/offsets", dtype=np.int64)
        self.file, self.ranks, self.ownership = file, ranks, Ownership(offsets, cluster_to_rank, ranks)
        self._halo_option = halo

    def shares(self) -> Shares:
        """Count all."""
        file, empty = self.file, np.zeros(self.ranks, np.int64)
        train, outer, loops, own, remote = (empty.copy() for _ in range(5))
        own_out, remote_out = (own, remote) if file.meta.undirected else (empty.copy(), empty.copy())
        inward, outward = self._pairs(), _Pairs(self.ranks)
        directions = [("", own, remote, inward)]
        if not file.meta.undirected:
            directions.append(("_out", own_out, remote_out, outward))
        for rank in range(self.ranks):
            ranges = self.ownership.ranges(rank)
            there = np.zeros(int(self.ownership.counts[rank]), bool)
            places = np.concatenate([np.arange(*each) for each in ranges]) if ranges else empty[:0]
            for suffix, mine, others, pairs in directions:
                for indices, owner, rows in self._edges(suffix, rank, ranges):
                    away = owner != rank
                    loops[rank] = len(np.unique(rows[indices == places[rows]]))
                    there[rows[away]] = True
                    others[rank] += int(np.count_nonzero(away))
                    mine[rank] += len(away) - int(np.count_nonzero(away))
                    pairs.add(rank, owner[away], indices[away], rows[away])
            outer[rank] = np.count_nonzero(there)
            if ranges:
                train[rank] = np.count_nonzero(file.read("nodes/split", ranges, np.uint8) == SPLITS["train"])
        counted, back = self._travelling(inward, inward if file.meta.undirected else outward)
        largest = int(self.ownership.counts.argmax())
        entries, features = 0.0, (NONE, NONE)
        if file.meta.sparse_features:
            entries = file.shape("nodes/features_csr/indices")[0] / max(1, file.meta.num_nodes)
            features = self._locality_of_features(largest)
        return Shares(
            *(self.ownership.counts, train, outer, loops, own, remote, own_out, remote_out),
            *(counted, counted if file.meta.undirected else back),
            int(inward.counts().rows.sum()),
            degrees=_degrees(file),
            entries=entries,
            locality=self._locality(largest),
            entry_locality=features[0],
            column_locality=features[1],
        )

    def _locality(self, rank: int) -> Locality:
        """See Shares: of the own edges of a rank."""
        for indices, owner, _ in self._edges("", rank, self.ownership.ranges(rank)):
            return locality_of(indices[owner == rank])
        return NONE

    def _locality_of_features(self, rank: int) -> tuple[Locality, Locality]:
        """(entry_locality, column_locality) of a rank, see Shares."""
        if not self.ownership.counts[rank]:
            return NONE, NONE
        indptr, spans = read_indptr(self.file, "nodes/features_csr", self.ownership.ranges(rank))
        columns = np.asarray(self.file.read("nodes/features_csr/indices", spans))
        nodes = edge_rows(indptr, 0, len(columns))
        return locality_of(columns), locality_of(nodes[np.argsort(columns, kind="stable")])

    def needed(self, worthwhile: Sequence[float], prunable: int) -> list[np.ndarray]:
        """bool (n,) in the order of the file: the nodes that the last layers compute in training, the last first; see
        graph/pruning.py, which has the arguments.
        """
        file, nodes = self.file, self.file.meta.num_nodes
        found: list[np.ndarray] = []
        while len(found) < prunable:
            if not found:
                mask = file.read("nodes/split", dtype=np.uint8) == SPLITS["train"]
                labels = file.read("nodes/labels")
                mask &= labels >= 0 if labels.ndim == 1 else True
            else:
                mask = found[-1].copy()
                for first in range(0, nodes, SLAB_ROWS):
                    indptr, spans = read_indptr(file, "topology", [(first, min(nodes, first + SLAB_ROWS))])
                    rows = edge_rows(indptr, 0, int(indptr[-1]))
                    mask[np.asarray(file.read("topology/indices", spans))[found[-1][first + rows]]] = True
            if np.count_nonzero(mask) > worthwhile[len(worthwhile) - 1 - len(found)] * nodes:
                break
            found.append(mask)
        return found

    def layers(
        self, shares: Shares, keeps_input: bool, worthwhile: Sequence[float], prunable: int
    ) -> dict[tuple[int | None, str], HaloCounts]:
        """{(layer, direction): HaloCounts} of the layers that compute some rows only; see graph/pruning.py."""
        sets, found = self.needed(worthwhile, prunable), dict[tuple[int | None, str], HaloCounts]()
        for back, outputs in enumerate(sets):
            layer = len(worthwhile) - 1 - back
            inputs = sets[back + 1] if back + 1 < len(sets) and layer > 0 else np.ones_like(outputs)
            whole = layer == 0 and keeps_input
            halo = (shares.inward, shares.outward) if whole else self.halo(inputs, outputs)
            found[layer, "inward"], found[layer, "outward"] = halo
        return found

    def halo(self, inputs: np.ndarray, outputs: np.ndarray) -> tuple[HaloCounts, HaloCounts]:
        """(inward, outward) HaloCounts of the edges from nodes in inputs to nodes in outputs: bool (n,)."""
        inward, outward = self._pairs(), _Pairs(self.ranks)
        for rank in range(self.ranks):
            ranges = self.ownership.ranges(rank)
            mine = np.concatenate([np.arange(*each) for each in ranges]) if ranges else np.zeros(0, np.int64)
            both = ((inward, outputs, inputs), (outward, inputs, outputs))
            for suffix, ways in (("", both),) if self.file.meta.undirected else (("", both[:1]), ("_out", both[1:])):
                for indices, owner, rows in self._edges(suffix, rank, ranges):
                    for pairs, rows_in, columns_in in ways:
                        taken = (owner != rank) & rows_in[mine[rows]] & columns_in[indices]
                        pairs.add(rank, owner[taken], indices[taken], rows[taken])
        return self._travelling(inward, outward)

    def _pairs(self) -> "_Pairs":
        return _Pairs(self.ranks) if self._halo_option == "rows" else _Covers(self.ranks)

    def _travelling(self, inward: "_Pairs", outward: "_Pairs") -> tuple[HaloCounts, HaloCounts]:
        """(inward, outward) of what travels: rows, or as in graph/least.py."""
        rows = inward.counts()
        if isinstance(inward, _Covers):
            fewest = inward.fewest()
            if self._halo_option == "least" or saves(int(rows.rows.sum()), int(fewest.rows.sum())):
                return fewest, fewest.adjoint
        return rows, outward.counts()

    def _edges(self, suffix: str, rank: int, ranges: list[tuple[int, int]]) -> Iterator[tuple[np.ndarray, ...]]:
        if not ranges:
            return
        indptr, spans = read_indptr(self.file, f"topology{suffix}", ranges)
        indices = np.asarray(self.file.read(f"topology{suffix}/indices", spans))
        owner, _ = self.ownership.locate(indices)
        yield indices, owner, edge_rows(indptr, 0, len(indices))


def locality_of(reads: np.ndarray) -> Locality:
    """(rows, shares) of the rows that are read one after another, see Shares: from stretches of them, each twice as
    long as the one before.

    What a stretch has of different rows grows with its length by the share of reads that are of none of those before:
    the miss rate of a working set (Denning, 1968). At the least each row is read once from afar.
    """
    length = 256
    if 2 * len(reads) <= length:  # too few to tell
        return NONE
    lengths, rows = [1.0], [1.0]
    while length < 2 * len(reads):
        firsts = np.linspace(0, max(0, len(reads) - length), 8 if length < len(reads) else 1, dtype=np.int64)
        different = np.mean([len(np.unique(reads[first : first + length])) for first in firsts])
        rows.append(max(rows[-1], float(different)))
        lengths.append(float(min(length, len(reads))))
        length *= 2
    grown = np.gradient(rows, lengths)
    grown[0] = 1.0
    shares = np.minimum.accumulate(np.clip(grown, rows[-1] / lengths[-1], 1.0))
    return np.array(rows), shares


class _Pairs:
    """Collects the different nodes that each rank receives, by the rank that they come from."""

    def __init__(self, ranks: int) -> None:
        self._ranks, self._found = ranks, list[tuple[np.ndarray, np.ndarray, np.ndarray]]()

    def add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        """Edges from nodes of these owners into rows of a rank: (E,) each."""
        _, first = np.unique(nodes, return_index=True)
        counts = np.bincount((rank - owner[first].astype(np.int64)) % self._ranks, minlength=self._ranks)
        offsets = np.flatnonzero(counts)
        self._found.append((np.full(len(offsets), rank), offsets, counts[offsets]))

    def counts(self) -> HaloCounts:
        """The rows, where all that are needed travel."""
        return _joined(self._ranks, self._found)


class _Covers(_Pairs):
    """Collects the sizes of the least covers of the edges between each two ranks besides (see graph/least.py)."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self._fewest = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()

    def add(self, rank: int, owner: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        super().add(rank, owner, nodes, rows)
        if len(nodes) == 0:
            return
        offset = (rank - owner.astype(np.int64)) % self._ranks
        order = np.lexsort((rows, nodes, offset))
        nodes, rows = nodes[order], rows[order]
        offsets, firsts = np.unique(offset[order], return_index=True)
        sizes = [_cover(*each) for each in zip(np.split(nodes, firsts[1:]), np.split(rows, firsts[1:]))]
        self._fewest.append((np.full(len(offsets), rank), offsets, np.array(sizes, np.int64)))

    def fewest(self) -> HaloCounts:
        """The rows and sums of rows, where the fewest travel."""
        return _joined(self._ranks, self._fewest)


def _cover(nodes: np.ndarray, rows: np.ndarray) -> int:
    """The size of a least cover of these edges (E,), which are ordered by nodes."""
    _, firsts = np.unique(nodes, return_index=True)
    ends, indices = np.unique(rows, return_inverse=True)
    indptr = torch.from_numpy(np.append(firsts, len(nodes)).astype(np.int64))
    return kernels.least_cover(indptr, torch.from_numpy(indices.astype(np.int32)), len(ends))[0]


def _joined(ranks: int, found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> HaloCounts:
    parts = zip(*found) if found else [[np.zeros(0, np.int64)]] * 3
    return HaloCounts(ranks, *(np.concatenate(part) for part in parts))


def _degrees(file: GraphFile) -> np.ndarray:
    """int64, in-degrees of at most SAMPLE nodes, drawn in stretches from all over the file."""
    nodes = file.meta.num_nodes
    stretch = max(1, SAMPLE // 256)
    firsts = np.unique(np.linspace(0, max(0, nodes - stretch), 256, dtype=np.int64))
    found = [
        np.diff(file.read("topology/indptr", [(int(first), min(nodes, int(first) + stretch) + 1)], np.int64))
        for first in firsts
    ]
    return np.concatenate(found)
