"""Each rank's share of a job, counted from the graph file and a map, one rank after another.

No training takes place. Memory holds the indices of one rank and some bytes for each of its nodes. For pruned layers,
it holds a byte for each node of the graph and layer.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hpcgnn.estimate.small_copy import OwnSteps
from hpcgnn.estimate.traffic import Covers, HaloCounts, Needs, Nodes
from hpcgnn.graph.own_rows import read_indptr
from hpcgnn.graph.transforms.vertex_cover import saves
from hpcgnn.graphfile.labels import LABELS
from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.graphfile.storage import SLAB_ROWS, GraphFile
from hpcgnn.placement.ownership import Ownership

# Nodes whose degrees stand for all.
SAMPLE = 1 << 16


#: taken(own ends, other ends), int64 (m,) in the order of the file -> bool (m,): which edges count.
Taken = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Shares:
    """The shares of all ranks. All arrays: (P,).

    Attributes:
        nodes, train: owned nodes, and those of the training split.
        outer: nodes with an edge from or to another rank (in place: another node).
        loops: nodes with an edge to themselves.
        own, remote: in-edges from owned nodes, and from other ranks' nodes. Rows of the node's other ranks count as
            owned where they are read in place.
        own_out, remote_out: out-edges likewise.
        inward, outward: HaloCounts of the directions, the same for an undirected graph.
        map_rows: halo rows of all ranks; fewer of them may travel.
        degrees: in-degrees of a sample of all nodes.
        entries: mean number of stored features per node, if features are sparse.
        seen: the training subgraph (`--inductive`), or None.
        steps: the steps that the schedule counts itself, or None.
        between: (inward, outward) between nodes, if their ranks read each other's rows in place and only these travel.
        crossing: rows that cross between these nodes in an exchange where ranks send them, and where nodes do.
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
    seen: "Shares | None" = None
    between: tuple[HaloCounts, HaloCounts] | None = None
    crossing: tuple[int, int] = (0, 0)
    steps: OwnSteps | None = None

    @property
    def ranks(self) -> int:
        return len(self.nodes)

    @property
    def edges(self) -> np.ndarray:
        """int64 (P,): in-edges."""
        return self.own + self.remote

    @property
    def in_training(self) -> "Shares":
        """Return the Shares of the training subgraph."""
        return self if self.seen is None else self.seen

    @property
    def travelling(self) -> tuple[HaloCounts, HaloCounts]:
        """Return the (inward, outward) counts of the messages."""
        return self.between or (self.inward, self.outward)

    @property
    def directed(self) -> bool:
        return self.outward is not self.inward


class ShareCounter:
    """Counts the rows that the ranks of a graph file and a map receive.

    Attributes:
        cluster_to_rank: int32 (K,), or (n,) for single nodes.
        halo: 'rows', 'least' or 'auto', see --halo.
        between: Nodes whose ranks read each other's rows in place, or None.
    """

    def __init__(
        self,
        file: GraphFile,
        cluster_to_rank: np.ndarray,
        ranks: int,
        halo: str = "rows",
        between: Nodes | None = None,
    ) -> None:
        nodes = file.meta.num_nodes
        single = len(cluster_to_rank) == nodes != file.meta.num_clusters
        offsets = np.arange(nodes + 1) if single else file.read("clusters/offsets", dtype=np.int64)
        self.file, self.ranks, self.ownership = file, ranks, Ownership(offsets, cluster_to_rank, ranks)
        self._halo_option, self._between = halo, between
        self._taken: Taken | None = None

    def taking(self, taken: Taken) -> "ShareCounter":
        """One that counts these edges alone."""
        found = copy.copy(self)
        found._taken = taken
        return found

    def shares(self, among: np.ndarray | None = None) -> Shares:
        """Count. among: bool (n,) in the order of the file, the nodes that count; None: all."""
        file, empty = self.file, np.zeros(self.ranks, np.int64)
        nodes = self.ownership.counts if among is None else empty.copy()
        train, outer, loops, own, remote = (empty.copy() for _ in range(5))
        own_out, remote_out = (own, remote) if file.meta.undirected else (empty.copy(), empty.copy())
        inward, outward = self._pairs(None), Needs(self.ranks)
        into_nodes, out_of_nodes = self._pairs(self._between), Needs(self.ranks, self._between)
        directions = [("", own, remote, inward, into_nodes)]
        if not file.meta.undirected:
            directions.append(("_out", own_out, remote_out, outward, out_of_nodes))
        for rank in range(self.ranks):
            ranges = self.ownership.ranges(rank)
            there = np.zeros(int(self.ownership.counts[rank]), bool)
            places = np.concatenate([np.arange(*each) for each in ranges]) if ranges else empty[:0]
            for suffix, mine, others, pairs, pairs_of_nodes in directions:
                for indices, owner, rows in self.edges(suffix, rank, ranges):
                    away = far = owner != rank
                    if self._between is not None:
                        far = owner // self._between.per_node != rank // self._between.per_node
                    loops[rank] = len(np.unique(rows[indices == places[rows]]))
                    there[rows[far]] = True
                    others[rank] += int(np.count_nonzero(far))
                    mine[rank] += len(far) - int(np.count_nonzero(far))
                    pairs.add(rank, owner[away], indices[away], rows[away])
                    if self._between is not None:
                        pairs_of_nodes.add(rank, owner[away], indices[away], rows[away])
            outer[rank] = np.count_nonzero(there)
            if among is not None:
                nodes[rank] = train[rank] = np.count_nonzero(among[places])
            elif ranges:
                train[rank] = np.count_nonzero(file.read("nodes/split", ranges, np.uint8) == SPLITS["train"])
        counted, back = self._travelling(inward, inward if file.meta.undirected else outward)
        between, crossing = None, (0, 0)
        if self._between is not None:
            apart = inward.counts().crossing(self._between.per_node)
            crossing = int(apart.rows.sum()), int(into_nodes.counts().rows.sum())
            between = self._travelling(into_nodes, into_nodes if file.meta.undirected else out_of_nodes)
            between = between[0], between[0] if file.meta.undirected else between[1]
        entries = 0.0
        if file.meta.sparse_features:
            entries = file.shape("nodes/features_csr/indices")[0] / max(1, file.meta.num_nodes)
        return Shares(
            *(nodes, train, outer, loops, own, remote, own_out, remote_out),
            *(counted, counted if file.meta.undirected else back),
            int(inward.counts().rows.sum()),
            degrees=_degrees(file),
            entries=entries,
            between=between,
            crossing=crossing,
        )

    def trained_on(self) -> np.ndarray:
        """bool (n,) in the order of the file: the training nodes that have a label."""
        mask, kind = self.file.read("nodes/split", dtype=np.uint8) == SPLITS["train"], LABELS[self.file.meta.task]
        for first in range(0, len(mask), SLAB_ROWS):
            labels = self.file.read("nodes/labels", [(first, min(len(mask), first + SLAB_ROWS))])
            mask[first : first + SLAB_ROWS] &= kind.labelled(labels)
        return mask

    def needed(self, worthwhile: Sequence[float], prunable: int) -> list[np.ndarray]:
        """Return the nodes that the last layers compute in training, the last layer first.

        graph/transforms/pruning.py explains the arguments.

        Returns:
            list of bool (n,) in the order of the file.
        """
        file, nodes = self.file, self.file.meta.num_nodes
        found: list[np.ndarray] = []
        while len(found) < prunable:
            if not found:
                mask = self.trained_on()
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
    ) -> dict[tuple[int | str | None, str], HaloCounts]:
        """{(layer, direction): HaloCounts} of pruned layers (graph/transforms/pruning.py)."""
        sets, found = self.needed(worthwhile, prunable), dict[tuple[int | str | None, str], HaloCounts]()
        for back, outputs in enumerate(sets):
            layer = len(worthwhile) - 1 - back
            inputs = sets[back + 1] if back + 1 < len(sets) and layer > 0 else np.ones_like(outputs)
            whole = layer == 0 and keeps_input
            halo = shares.travelling if whole else self.halo(inputs, outputs)
            found[layer, "inward"], found[layer, "outward"] = halo
        return found

    def halo(self, inputs: np.ndarray, outputs: np.ndarray) -> tuple[HaloCounts, HaloCounts]:
        """(inward, outward) HaloCounts of the edges from nodes in inputs to nodes in outputs: bool (n,)."""
        inward, outward = self._pairs(self._between), Needs(self.ranks, self._between)
        for rank in range(self.ranks):
            ranges = self.ownership.ranges(rank)
            mine = np.concatenate([np.arange(*each) for each in ranges]) if ranges else np.zeros(0, np.int64)
            both = ((inward, outputs, inputs), (outward, inputs, outputs))
            for suffix, ways in (("", both),) if self.file.meta.undirected else (("", both[:1]), ("_out", both[1:])):
                for indices, owner, rows in self.edges(suffix, rank, ranges):
                    for pairs, rows_in, columns_in in ways:
                        taken = (owner != rank) & rows_in[mine[rows]] & columns_in[indices]
                        pairs.add(rank, owner[taken], indices[taken], rows[taken])
        return self._travelling(inward, outward)

    def _pairs(self, between: Nodes | None) -> Needs:
        return Needs(self.ranks, between) if self._halo_option == "rows" else Covers(self.ranks, between)

    def _travelling(self, inward: Needs, outward: Needs) -> tuple[HaloCounts, HaloCounts]:
        """Return (inward, outward) counts of the messages: rows, or rows and sums as in
        graph/transforms/vertex_cover.py.
        """
        rows = inward.counts()
        if isinstance(inward, Covers):
            fewest = inward.fewest()
            if self._halo_option == "least" or saves(int(rows.rows.sum()), int(fewest.rows.sum())):
                return fewest, fewest.adjoint
        return rows, outward.counts()

    def edges(self, suffix: str, rank: int, ranges: list[tuple[int, int]]) -> Iterator[tuple[np.ndarray, ...]]:
        """(the other ends in the order of the file, their owners, own rows) of a rank's edges that count."""
        if not ranges:
            return
        indptr, spans = read_indptr(self.file, f"topology{suffix}", ranges)
        indices = np.asarray(self.file.read(f"topology{suffix}/indices", spans))
        owner, _ = self.ownership.locate(indices)
        rows = edge_rows(indptr, 0, len(indices))
        if self._taken is not None:
            places = np.concatenate([np.arange(*each) for each in ranges])
            taken = self._taken(places[rows], indices)
            indices, owner, rows = indices[taken], owner[taken], rows[taken]
        yield indices, owner, rows


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
