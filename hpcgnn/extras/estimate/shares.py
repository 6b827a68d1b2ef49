"""Each rank's share of a job, counted from the graph file and a map, one rank after another.

No training takes place. Memory holds the indices of one rank and some bytes for each of its nodes. For pruned layers,
it holds a byte for each node of the graph and layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcgnn.extras.estimate.traffic import Covers, HaloCounts, Needs, Nodes, Place
from hpcgnn.graph.own_rows import read_indptr
from hpcgnn.graph.transforms.vertex_cover import saves
from hpcgnn.graphfile.label_files import LABELS
from hpcgnn.graphfile.ranges import edge_rows
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.graphfile.storage import SLAB_ROWS, GraphFile
from hpcgnn.placement.ownership import Ownership

# Nodes whose degrees stand for all.
SAMPLE = 1 << 16


@dataclass(frozen=True)
class Way:
    """One direction of the edges of all ranks.

    Attributes:
        own, remote: int64 (P,), edges from owned nodes, and from other ranks' nodes. Rows of the node's other ranks
            count as owned where they are read in place.
        ranks: the rows between ranks.
        travelling: the rows that travel: these, or those between nodes whose ranks read each other's rows in place.
    """

    own: np.ndarray
    remote: np.ndarray
    ranks: HaloCounts
    travelling: HaloCounts


@dataclass(frozen=True)
class Shares:
    """The shares of all ranks.

    Attributes:
        nodes, train: int64 (P,), owned nodes, and those of the training split.
        outer: int64 (P,), nodes with an edge from or to another rank (in place: another node).
        loops: int64 (P,), nodes with an edge to themselves.
        inward, outward: the in-edges and the out-edges, the same Way for an undirected graph.
        map_rows: halo rows of all ranks; fewer of them may travel.
        degrees: in-degrees of a sample of all nodes.
        entries: mean number of stored features per node, if features are sparse.
        crossing: rows that cross between nodes in an exchange where ranks send them, and where nodes do.
    """

    nodes: np.ndarray
    train: np.ndarray
    outer: np.ndarray
    loops: np.ndarray
    inward: Way
    outward: Way
    map_rows: int
    degrees: np.ndarray
    entries: float = 0.0
    crossing: tuple[int, int] = (0, 0)

    @property
    def ranks(self) -> int:
        return len(self.nodes)

    @property
    def edges(self) -> np.ndarray:
        """int64 (P,): in-edges."""
        return self.inward.own + self.inward.remote


class ShareCounter:
    """Counts the rows that the ranks of a graph file and a map receive.

    Attributes:
        cluster_to_rank: int32 (K,), or (n,) for single nodes.
        halo: 'rows', 'least' or 'auto', see --halo.
        between: Nodes whose ranks read each other's rows in place, or None.
    """

    def __init__(
        self, file: GraphFile, cluster_to_rank: np.ndarray, ranks: int, halo: str = "rows", between: Nodes | None = None
    ) -> None:
        nodes = file.meta.num_nodes
        single = len(cluster_to_rank) == nodes != file.meta.num_clusters
        offsets = np.arange(nodes + 1) if single else file.read("clusters/offsets", dtype=np.int64)
        self._file, self._ranks, self._ownership = file, ranks, Ownership(offsets, cluster_to_rank, ranks)
        self._halo_option, self._alone, self._between = halo, Nodes(ranks, 1), between
        self._suffixes = ("",) if file.meta.undirected else ("", "_out")

    def shares(self) -> Shares:
        """Count."""
        file = self._file
        nodes, train, outer, loops = np.zeros((4, self._ranks), np.int64)
        own, remote = np.zeros((2, len(self._suffixes), self._ranks), np.int64)
        senders = [self._alone] if self._between is None else [self._alone, self._between]
        needs = [(self._needs(each), Needs(each)) for each in senders]
        for rank in range(self._ranks):
            there, places = np.zeros(int(self._ownership.counts[rank]), bool), self._places(rank)
            for side, suffix in enumerate(self._suffixes):
                indices, owner, rows = self._edges(suffix, rank)
                far = owner // senders[-1].per_node != rank // senders[-1].per_node
                loops[rank] = len(np.unique(rows[indices == places[rows]]))
                there[rows[far]] = True
                remote[side, rank] = np.count_nonzero(far)
                own[side, rank] = len(far) - remote[side, rank]
                for both in needs:
                    both[side].add(rank, owner, indices, rows)
            outer[rank] = np.count_nonzero(there)
            nodes[rank] = len(places)
            split = file.read("nodes/split", self._ownership.ranges(rank), np.uint8)
            train[rank] = np.count_nonzero(split == SPLITS["train"])
        found = [self._travelling(inward, outward) for inward, outward in needs]
        sides = range(len(self._suffixes))
        ways = [Way(own[side], remote[side], found[0][side], found[-1][side]) for side in sides]
        halo, crossing = needs[0][0].counts(), (0, 0)
        if self._between is not None:
            apart = halo.crossing(self._between.per_node)
            crossing = int(apart.rows.sum()), int(needs[1][0].counts().rows.sum())
        entries = 0.0
        if file.meta.sparse_features:
            entries = file.shape("nodes/features_csr/indices")[0] / max(1, file.meta.num_nodes)
        return Shares(
            *(nodes, train, outer, loops, ways[0], ways[-1], int(halo.rows.sum())),
            degrees=_degrees(file),
            entries=entries,
            crossing=crossing,
        )

    def trained_on(self) -> np.ndarray:
        """bool (n,) in the order of the file: the training nodes that have a label."""
        mask, kind = self._file.read("nodes/split", dtype=np.uint8) == SPLITS["train"], LABELS[self._file.meta.task]
        for first in range(0, len(mask), SLAB_ROWS):
            labels = self._file.read("nodes/labels", [(first, min(len(mask), first + SLAB_ROWS))])
            mask[first : first + SLAB_ROWS] &= kind.labelled(labels)
        return mask

    def _needed(self, worthwhile: Sequence[float], prunable: int) -> list[np.ndarray]:
        """Return the nodes that the last layers compute in training, the last layer first.

        graph/transforms/pruning.py explains the arguments.

        Returns:
            list of bool (n,) in the order of the file.
        """
        file, nodes = self._file, self._file.meta.num_nodes
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
    ) -> dict[Place, HaloCounts]:
        """{(layer, direction): HaloCounts} of pruned layers (graph/transforms/pruning.py)."""
        sets, found = self._needed(worthwhile, prunable), dict[Place, HaloCounts]()
        for back, outputs in enumerate(sets):
            layer = len(worthwhile) - 1 - back
            inputs = sets[back + 1] if back + 1 < len(sets) and layer > 0 else np.ones_like(outputs)
            if layer == 0 and keeps_input:
                halo = shares.inward.travelling, shares.outward.travelling
            else:
                halo = self._halo(inputs, outputs)
            found[layer, "inward"], found[layer, "outward"] = halo
        return found

    def _halo(self, inputs: np.ndarray, outputs: np.ndarray) -> tuple[HaloCounts, HaloCounts]:
        """(inward, outward) HaloCounts of the edges from nodes in inputs to nodes in outputs: bool (n,)."""
        senders = self._between or self._alone
        inward, outward = self._needs(senders), Needs(senders)
        ways = (inward, outputs, inputs), (outward, inputs, outputs)
        for rank in range(self._ranks):
            places = self._places(rank)
            edges = [self._edges(suffix, rank) for suffix in self._suffixes]
            for way, (indices, owner, rows) in zip(ways, (edges[0], edges[-1]), strict=True):
                pairs, rows_in, columns_in = way
                taken = rows_in[places[rows]] & columns_in[indices]
                pairs.add(rank, owner[taken], indices[taken], rows[taken])
        return self._travelling(inward, outward)

    def _needs(self, senders: Nodes) -> Needs:
        return Needs(senders) if self._halo_option == "rows" else Covers(senders)

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

    def _places(self, rank: int) -> np.ndarray:
        """int64: a rank's nodes in the order of the file."""
        return np.concatenate([np.zeros(0, np.int64), *(np.arange(*each) for each in self._ownership.ranges(rank))])

    def _edges(self, suffix: str, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(the other ends in the order of the file, their owners, own rows) of a rank's edges."""
        indptr, spans = read_indptr(self._file, f"topology{suffix}", self._ownership.ranges(rank))
        indices = np.asarray(self._file.read(f"topology{suffix}/indices", spans))
        return indices, self._ownership.locate(indices)[0], edge_rows(indptr, 0, len(indices))


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
