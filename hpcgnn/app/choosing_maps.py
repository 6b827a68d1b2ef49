"""Which map a run uses: one that the graph file has, one that is made for this run, or a random one."""

import numpy as np

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.schema import Csr
from hpcgnn.graphfile.storage import SLAB_ROWS, GraphFile
from hpcgnn.options import DEALT
from hpcgnn.placement.clusters import SKEWED, deal_clusters, economical_map, map_clusters, skew_of_parts

MADE_MAPS = "whole", "auto", *DEALT  # maps that are made for a run and have no name in the file
SPLIT_NODES, SPLIT_EDGES = 1 << 16, 1 << 20  # of the largest graph that a run splits into nodes
DEFAULT_MAPS = "metis", "kaminpar"  # names of what `partition` makes by default, in the order of preference


def choose_map(file: GraphFile, config: Config, comm: Communicator) -> tuple[str, np.ndarray]:
    """(name, cluster_to_rank int32 (K,), or (n,) for single nodes) for the ranks of a replica. Collective. Raises
    GraphError or ConfigError on all ranks.

    Rank 0 chooses for all where all have the same file open; else each rank does, but for a map that is made.
    """
    name, found, made = "", None, False
    with comm.together("choosing the cluster map", on_one=file.shared):
        if comm.rank == 0 or not file.shared:
            name, found = find_map(file, config, comm.size)
            made = found is None
            if made and comm.rank == 0:
                graph, loads = to_split(file)
                with comm.heartbeat.computing():
                    found = _made(file, graph, loads, ranks_of_replica(config, comm.size), config.run.seed)
    of_first = comm.broadcast_object((name, 0 if found is None else len(found)))
    if not file.shared and not any(comm.allgather_object(made)):
        assert found is not None, "every rank has found one"
        return name, found
    name, length = of_first
    return name, comm.broadcast_array(found, length, np.int32)


def map_of_one_process(file: GraphFile, config: Config, ranks: int) -> tuple[str, np.ndarray]:
    """Return the result of `choose_map` on the ranks of a job, for a process outside of it."""
    name, found = find_map(file, config, ranks)
    ranks = ranks_of_replica(config, ranks)
    return name, _made(file, *to_split(file), ranks, config.run.seed) if found is None else found


def ranks_of_replica(config: Config, ranks: int) -> int:
    """How many of a job's ranks have the whole graph together. Raises ConfigError."""
    replicas = config.data.replicas
    if ranks % replicas:
        raise ConfigError(
            f"--replicas {replicas}: expected a divisor of the number of ranks, which is {ranks}; for a run that goes "
            "on with other ranks say --replicas 1"
        )
    return ranks // replicas


def _made(file: GraphFile, graph: Csr, loads: np.ndarray, ranks: int, seed: int) -> np.ndarray:
    """A map that balances nodes and in-edges, as `partition` makes it by default: int32 (K,), or (n,)."""

    def make(sizes: np.ndarray) -> np.ndarray:
        return map_clusters(sizes, graph, ranks, seed % 2**31)  # METIS and numpy take no other integers

    nodes = file.meta.num_nodes
    slabs = [(start, min(start + SLAB_ROWS, nodes) + 1) for start in range(0, nodes, SLAB_ROWS)]
    degrees = (np.diff(file.read("topology/indptr", [slab], np.int64)) for slab in slabs)
    if skew_of_parts(degrees, nodes, file.meta.num_edges) > SKEWED:
        return make(loads)
    return economical_map(make, loads, graph, ranks)


def to_split(file: GraphFile) -> tuple[Csr, np.ndarray]:
    """The graph that a map is made for, and its loads as of `cluster_loads`: of the clusters, or of the nodes of a file
    that has one cluster.
    """
    if file.meta.num_clusters > 1:
        graph = file.cluster_graph()
        return graph, cluster_loads(file, graph)
    nodes, keys = file.meta.num_nodes, []
    for suffix in ("",) if file.meta.undirected else ("", "_out"):
        indptr = file.read(f"topology{suffix}/indptr", dtype=np.int64)
        rows = np.repeat(np.arange(nodes), np.diff(indptr))
        keys.append(rows * nodes + file.read(f"topology{suffix}/indices", dtype=np.int64))
    cells, counts = np.unique(np.concatenate(keys), return_counts=True)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(cells // nodes, minlength=nodes))])
    in_edges = np.diff(file.read("topology/indptr", dtype=np.int64))
    return Csr(pointers, cells % nodes, counts, nodes), np.stack([np.ones_like(in_edges), in_edges], axis=1)


def cluster_loads(file: GraphFile, graph: Csr) -> np.ndarray:
    """Return the loads that are balanced over ranks, int64 (K, 2): nodes and in-edges of each cluster.

    The rows of an undirected graph's cluster graph sum to the in-edges. A directed one's hold out-edges too, so the
    function reads the pointers at the borders of the clusters.

    Args:
        file: the graph file.
        graph: its graph of clusters.
    """
    offsets = file.read("clusters/offsets", dtype=np.int64)
    if file.meta.undirected and graph.data is not None:
        edges = np.diff(np.concatenate([[0], np.cumsum(graph.data, dtype=np.int64)])[graph.indptr])
    else:
        edges = np.diff(file.read("topology/indptr", [(int(row), int(row) + 1) for row in offsets], np.int64))
    return np.stack([np.diff(offsets), edges], axis=1)


def find_map(file: GraphFile, config: Config, ranks: int) -> tuple[str, np.ndarray | None]:
    """Find the map for the replicas of a job with so many ranks. Not collective.

    Returns:
        (name, cluster_to_rank int32 (K,), or None if the run has to make the map).

    Raises:
        GraphError, ConfigError: the file has no such map.
    """
    stored, wanted, ranks = file.partitionings(), config.data.partition, ranks_of_replica(config, ranks)
    fitting = [name for name, numbers in stored.items() if ranks in numbers]
    dealt = wanted in DEALT and wanted not in fitting
    _check_number(file, ranks, wanted if dealt or wanted == "" else "stored")
    if ranks == 1 and (dealt or not wanted):
        return "whole", np.zeros(file.meta.num_clusters, np.int32)  # one rank owns everything and needs no map
    if dealt:
        return wanted, deal(file, wanted, ranks, config.run.seed % 2**31)
    # What `partition` makes by default; any other single fitting map will do as well.
    usual = [name for name in DEFAULT_MAPS if name in fitting] or (fitting if len(fitting) == 1 else [])
    if not wanted and not usual:
        return "auto", None
    name = wanted or usual[0]
    return name, file.cluster_map(name, ranks)[0]


def _check_number(file: GraphFile, ranks: int, wanted: str) -> None:
    """Raise ConfigError where ranks are more than the parts that a map can give them. wanted: one of DEALT, '' or
    'stored'.
    """
    meta = file.meta
    # `import` makes no clusters. A small graph can be split into nodes at once, without `partition`.
    small = meta.num_clusters == 1 and meta.num_nodes <= SPLIT_NODES and meta.num_edges <= SPLIT_EDGES
    by_nodes = wanted == "random-nodes" or (wanted == "" and small)
    if by_nodes and ranks > meta.num_nodes:
        raise ConfigError(f"{ranks} ranks are more than the {meta.num_nodes} nodes of {file.path}; start fewer ranks")
    if not by_nodes and ranks > meta.num_clusters:
        raise ConfigError(
            f"{ranks} ranks are more than the {meta.num_clusters} clusters of {file.path}; start fewer "
            f"ranks or partition the graph with --ranks {ranks}"
        )


def deal(file: GraphFile, how: str, ranks: int, seed: int) -> np.ndarray:
    """A map of DEALT: int32 (K,) clusters to ranks, or (n,) nodes to ranks; the same wherever it is made."""
    if how == "super-nodes":
        return deal_clusters(np.diff(file.read("clusters/offsets", dtype=np.int64)), ranks, seed)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(file.meta.num_nodes)
    return (order % ranks).astype(np.int32)
