"""Small graphs with every oddity that real ones have, and their files with chosen maps of clusters to ranks."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import Csr, Edges, GraphData, GraphFile, write_graph
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

TRAIN, VAL, TEST = 1, 2, 3
#: Of an undirected graph with a class for each node.
META = GraphMeta(
    num_nodes=1000,
    num_edges=8000,
    num_clusters=1000,
    num_classes=4,
    num_features=16,
    num_self_loops=0,
    undirected=True,
    task="classification",
    sparse_features=False,
    weighted=False,
    typed=False,
    uuid="",
    source="",
    seed=0,
    versions={},
    num_edge_types=0,
    num_node_types=0,
    type_names={},
)


@dataclass(frozen=True)
class PlainGraph:
    """A graph as plain arrays over original node ids. src, dst: int64 (E,), every directed edge; weight: float32
    (E,) or None.
    """

    name: str
    num_nodes: int
    src: np.ndarray
    dst: np.ndarray
    undirected: bool
    weight: np.ndarray | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    split: np.ndarray | None = None
    num_classes: int = 3


def _both_ways(name, n, pairs, weight=None):
    """An undirected graph from pairs (u, v); a pair with u == v is one loop."""
    pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
    back = pairs[:, 0] != pairs[:, 1]
    src, dst = np.concatenate([pairs[:, 0], pairs[back, 1]]), np.concatenate([pairs[:, 1], pairs[back, 0]])
    return PlainGraph(
        name, n, src, dst, True, None if weight is None else np.concatenate([weight, weight[back]]).astype(np.float32)
    )


def path(n=7):
    return _both_ways("path", n, [(i, i + 1) for i in range(n - 1)])


def star(n=17):
    """One node that everybody needs."""
    return _both_ways("star", n, [(0, i) for i in range(1, n)])


def two_cliques(n=12):
    """Two halves, 0 … n/2-1 and the rest, with no edge between them: with the right map nothing crosses."""
    return _both_ways(
        "two cliques", n, [(i, j) for half in (range(n // 2), range(n // 2, n)) for i in half for j in half if i < j]
    )


def rings(count=9, n=400, seed=4):
    """Rings of n nodes. The first node of each ring has edges to the first nodes of other rings, and a tenth of the
    others one.
    """
    pairs = [(ring * n + i, ring * n + (i + 1) % n) for ring in range(count) for i in range(n)]
    pairs += [(one * n, other * n) for one in range(count) for other in range(one)]
    random = np.random.default_rng(seed)
    for node in random.choice(count * n, count * n // 10, replace=False):
        pairs.append((node, (node + n) // n % count * n))
    return _both_ways("rings", count * n, pairs)


def no_edges(n=6):
    return _both_ways("no edges", n, [])


def random_undirected(n=60, seed=1, weighted=False):
    """Duplicate edges, some self loops, and isolated nodes (the last tenth)."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, n - n // 10, (4 * n, 2))
    pairs = np.concatenate([pairs, pairs[: n // 2], [(i, i) for i in range(0, n // 2, 3)]])
    return _both_ways(
        "random undirected" + " weighted" * weighted,
        n,
        pairs,
        random.uniform(0.5, 1.5, len(pairs)) if weighted else None,
    )


def random_directed(n=60, seed=2, weighted=False):
    """As above, directed: nodes without in-edges, without out-edges, and without either."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, n - n // 5, 5 * n), random.integers(n // 10, n - n // 10, 5 * n)
    src, dst = (
        np.concatenate([src, src[: n // 2], np.arange(0, n, 4)]),
        np.concatenate([dst, dst[: n // 2], np.arange(0, n, 4)]),
    )
    weight = random.uniform(0.5, 1.5, len(src)).astype(np.float32) if weighted else None
    return PlainGraph("random directed" + " weighted" * weighted, n, src, dst, False, weight)


def power_law(n=200, seed=3):
    """A few nodes with very many neighbours (preferential attachment)."""
    random, ends, pairs = np.random.default_rng(seed), [0], []
    for node in range(1, n):
        for other in {ends[i] for i in random.integers(0, len(ends), 4)}:
            pairs.append((node, other))
            ends += [node, other]
    return _both_ways("power law", n, pairs)


def all_graphs():
    """One of each kind."""
    random = [make(weighted=weighted) for make in (random_undirected, random_directed) for weighted in (False, True)]
    return [path(), star(), two_cliques(), no_edges(), *random, power_law()]


def with_task(graph, num_features=5, num_classes=3, multi_label=False, seed=11):
    """The graph with random features, labels and split (half train); every tenth node has no label if there is one
    each.
    """
    random, n = np.random.default_rng(seed), graph.num_nodes
    features = random.standard_normal((n, num_features)).astype(np.float32)
    features[random.random((n, num_features)) < 0.5] = 0.0  # so that the same features can be stored sparsely
    labels = (
        random.integers(0, 2, (n, num_classes)).astype(np.uint8) if multi_label else random.integers(0, num_classes, n)
    )
    if not multi_label:
        labels[::10] = -1
    return replace(
        graph,
        features=features,
        labels=labels,
        num_classes=num_classes,
        split=random.choice(np.array([TRAIN, TRAIN, VAL, TEST], np.uint8), n),
    )


def _grouped(n, by, other, weight):
    """Edges grouped by one end and sorted by the other."""
    order = np.lexsort((other, by))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(by, minlength=n))]).astype(np.int64)
    return Edges(indptr, other[order].astype(np.int32), None if weight is None else weight[order])


def _csr(dense):
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))]).astype(np.int64)
    return Csr(indptr, columns.astype(np.int32), dense[rows, columns], dense.shape[1])


def graph_data(graph, order, offsets, sparse=False):
    """GraphData with row i of the file being original node order[i]."""
    row_of = np.empty(graph.num_nodes, np.int64)
    row_of[order] = np.arange(graph.num_nodes)
    src, dst = row_of[graph.src], row_of[graph.dst]
    features = None if graph.features is None else graph.features[order]
    return GraphData(
        edges=_grouped(graph.num_nodes, dst, src, graph.weight),
        edges_out=None if graph.undirected else _grouped(graph.num_nodes, src, dst, graph.weight),
        features=_csr(features) if sparse else features,
        labels=graph.labels[order],
        split=graph.split[order],
        original_id=np.asarray(order, np.int64),
        cluster_offsets=np.asarray(offsets, np.int64),
        num_classes=graph.num_classes,
        uuid=f"test-{graph.name}",
        num_self_loops=int((graph.src == graph.dst).sum()),
        source="tests",
        cluster_graph=Csr(
            np.arange(len(offsets), dtype=np.int64),
            np.zeros(len(offsets) - 1, np.int32),
            np.ones(len(offsets) - 1, np.int64),
        ),
    )


@dataclass(frozen=True)
class Layout:
    """How a graph lies in its file. order: original ids by row; offsets: of the K clusters; maps: {name: cluster ->
    rank}.
    """

    order: np.ndarray
    offsets: np.ndarray
    maps: dict

    def owner(self, name):
        """int (n,): the rank that owns each original node."""
        owner = np.empty(len(self.order), np.int64)
        owner[self.order] = np.repeat(self.maps[name], np.diff(self.offsets))
        return owner


def layout(graph, ranks, clusters=9, seed=5):
    """A random order in clusters of unequal sizes, one of them empty, and maps onto `ranks` ranks:

    'dealt' round robin, 'blocks' contiguous, 'random', 'one empty' leaves the last rank without nodes, 'all on last'.
    """
    random, n = np.random.default_rng(seed), graph.num_nodes
    cuts = np.sort(random.integers(0, n + 1, clusters - 2))
    offsets = np.concatenate([[0], cuts, [n, n]])
    dealt = np.arange(clusters, dtype=np.int32) % ranks
    maps = {
        "dealt": dealt,
        "blocks": np.sort(dealt),
        "random": random.integers(0, ranks, clusters, dtype=np.int32),
        "one empty": np.arange(clusters, dtype=np.int32) % max(1, ranks - 1),
        "all on last": np.full(clusters, ranks - 1, np.int32),
    }
    return Layout(random.permutation(n), offsets, maps)


def halves(graph, ranks):
    """The original order in two clusters, the halves of the graph, on the first and the last rank: no edge of
    `two_cliques` crosses.
    """
    n = graph.num_nodes
    return Layout(np.arange(n), np.array([0, n // 2, n]), {"halves": np.array([0, ranks - 1], np.int32)})


def write_file(file_path, graph, where, ranks, sparse=False):
    """Write the graph file of a PlainGraph that has a task, with all maps of the Layout."""
    write_graph(
        file_path,
        graph_data(graph, where.order, where.offsets, sparse),
        [(name, ranks, cluster_to_rank, {}) for name, cluster_to_rank in where.maps.items()],
    )
    return file_path


def planted(file_path, ranks=(), clusters=16, **spec):
    """Write a generated graph with maps for these numbers of ranks; returns its path. spec: unusual values."""
    usual = {"nodes": 300, "degree": 6, "features": 8, "classes": 3, "seed": 1}
    generate_graph("planted", file_path, Spec(**{**usual, **spec}))
    if ranks:
        partition_graph(file_path, ranks, num_clusters=clusters)
    return file_path


# What `load` has loaded: many tests begin with the same share of the same small graph, and opening files takes long.
_loaded = {}


def load(file_path, cluster_to_rank, comm, *, cap=1 << 20, self_loops="keep", dtype=torch.float64, keep_edges=False):
    """This rank's LocalGraph of a file; cluster_to_rank None puts everything on one rank (of a SoloCommunicator). Who
    asks for the same again gets the same object: nothing may write to it.
    """
    state, layout = Path(file_path).stat(), None if cluster_to_rank is None else np.asarray(cluster_to_rank).tobytes()
    of_file = str(file_path), state.st_ino, state.st_mtime_ns, state.st_size
    key = *of_file, layout, comm, cap, self_loops, dtype, keep_edges
    if key not in _loaded:
        with GraphFile(file_path) as file:
            if cluster_to_rank is None:
                comm, cluster_to_rank = SoloCommunicator(), np.zeros(file.meta.num_clusters, np.int32)
            _loaded[key] = load_local_graph(file, cluster_to_rank, comm, cap, self_loops, dtype, keep_edges)
    return _loaded[key]
