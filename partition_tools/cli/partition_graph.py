"""The sub-command `partition`: maps of a graph's clusters to ranks, which one file may have many of.

`add` clusters a graph once, and stores as many maps as are wanted; `list` and `remove` manage them.
"""

import argparse
import contextlib
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.schema import Csr, GraphData
from hpcgnn.graphfile.storage import GraphFile, add_partitionings
from hpcgnn.output_files import check_outputs
from hpcgnn.placement.clusters import economical_map, imbalance, is_skewed, without_diagonal
from hpcgnn.terminal import tell
from partition_tools.canonical.canonical import versions
from partition_tools.cli.inspect_graph import map_table, maps_of
from partition_tools.graph.loading import load_graph
from partition_tools.graph.quality import cluster_graph, cluster_sizes, hubs, partition_quality, rank_of
from partition_tools.graph.writing import write_with_bar
from partition_tools.partitioners.choice import choose
from partition_tools.partitioners.clustering import clustered
from partition_tools.partitioners.given import Given
from partition_tools.partitioners.methods import AUTO, KEYS, METHODS, method_of
from partition_tools.workspace.budget import memory_budget
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.settings import check_choices, values_of
from partition_tools.workspace.working import Resources, add_memory_options, working

HELP = "cluster the graph and map its clusters to ranks; list and remove maps"
BALANCES = (AUTO, "both", "nodes", "edges", "train")
WARN_IMBALANCE = {"nodes": 1.05, "in-edges": 1.10}
HELD_BYTES = 32  # of memory for each edge that is read at once; otherwise each map reads the edges rank by rank
CLUSTERS_PER_RANK, NODES_PER_CLUSTER, SMALLEST_CLUSTER = 64, 1000, 4
MOST_CLUSTERS = 8192  # unless the ranks need more: the cluster graph of a skewed graph grows with their square
DESCRIPTION = "A graph file has maps of its clusters to ranks, one for each name and number of ranks."
ADD = (
    f"""Split a graph into K clusters, and put its nodes in cluster order. For each number of ranks P store a map of
clusters to ranks under /partitionings/NAME/P. The first call on an imported file rewrites it; later calls only add
maps, so one file serves a whole scaling study. K defaults to the larger of {CLUSTERS_PER_RANK} x the largest P and
n / {NODES_PER_CLUSTER}, the latter at most {MOST_CLUSTERS}.

methods:
  auto             metis, or kaminpar where METIS would not fit the memory; the default
"""
    + "\n".join(f"  {name:16} {method.HELP}" for name, method in METHODS.items())
    + """

Peak memory, first call: 12 E + 60 n bytes, and in METIS 45 to 150 E or in KaMinPar about 10 E; with less --memory the
edges stay on disk (kaminpar, random-nodes). Later calls: about 60 n bytes."""
)


@dataclass(frozen=True)
class PartitionOptions:
    """Options of making maps.

    Attributes:
        balance: the things that ranks get equal shares of.
        force: replace an existing output.
        settings: {key: value} of the method's own options.

    Raises:
        ConfigError: an unknown value.
    """

    seed: int = 0
    balance: str = field(default=AUTO, metadata={"choices": BALANCES})
    force: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"the seed must be from 0 to 2^31 - 1, got {self.seed}")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(required=True, dest="action", metavar="add|list|remove")
    add = actions.add_parser("add", help="make maps", description=ADD)
    shown = actions.add_parser("list", help="show the maps of a file", description="Show the maps of a file.")
    shown.add_argument("graph", type=Path, metavar="GRAPH")
    remove = actions.add_parser("remove", help="remove maps", description="Remove maps of a file, in place.")
    remove.add_argument("graph", type=Path, metavar="GRAPH")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument("--ranks", metavar="LIST", help="numbers of ranks (default: all of the name)")
    add.add_argument("graph", type=Path, metavar="GRAPH", help="graph file, changed in place unless -o is given")
    add.add_argument("--ranks", required=True, metavar="LIST", help="numbers of ranks, such as 1,2,4,8")
    add.add_argument("--clusters", dest="num_clusters", type=int, metavar="K", help="number of clusters")
    add.add_argument("--method", metavar="{" + ",".join((AUTO, *METHODS)) + "}", default=AUTO)
    add.add_argument("--name", help="name of the maps in the file (default: the method)")
    add.add_argument("--seed", type=int, default=0, metavar="S")
    add.add_argument(
        "--balance",
        choices=BALANCES,
        default=AUTO,
        help="balance of ranks: nodes and in-edges (both), one of them, or training nodes. Default auto: both, unless "
        "equal in-edges would cost many halo rows and save little time",
    )
    add.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here and leave GRAPH as it is")
    add.add_argument("--force", action="store_true", help="overwrite an existing -o FILE")
    add.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the method")
    add_memory_options(add)


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    if arguments.action == "remove":
        remove_maps(arguments.graph, arguments.name, rank_counts(arguments.ranks) if arguments.ranks else None)
        return 0
    if arguments.action == "list":
        tell(_shown_maps(arguments.graph), needed=True)
        return 0
    settings, resources = values_of(arguments.set, KEYS), Resources(arguments.memory, arguments.scratch, reporter)
    options = PartitionOptions(arguments.seed, arguments.balance, arguments.force, settings, resources)
    given = {name: getattr(arguments, name) for name in ("method", "num_clusters", "name", "output")}
    partition_graph(arguments.graph, rank_counts(arguments.ranks), **given, options=options)
    tell(_shown_maps(arguments.output or arguments.graph))
    return 0


def _shown_maps(path: Path) -> str:
    """A table of the maps of a graph file."""
    with GraphFile(path) as file:
        found = maps_of(file)
        return map_table(found, file.meta.num_edges) if found else f"{path} has no maps; partition add makes them"


def remove_maps(path: str | Path, name: str, ranks: list[int] | None = None) -> None:
    """Remove maps of a graph file, in place. ranks: None for all of the name. Raises ConfigError for missing ones."""
    check_outputs({"": path}, (), True)
    with claimed(path):
        with GraphFile(path) as file:
            there = file.partitionings().get(name, [])
        gone = there if ranks is None else ranks
        if not gone or set(gone) - set(there):
            have = f"it has {name} for {', '.join(map(str, there))}" if there else f"it has no {name} for any"
            raise ConfigError(f"{path} has no such map to remove; {have} ranks")
        add_partitionings(path, (), None, [name] if len(gone) == len(there) else [f"{name}/{count}" for count in gone])


def rank_counts(ranks: int | str | Iterable[int]) -> list[int]:
    """Sorted distinct numbers of ranks, of a text such as "1,2,4" as well. Raises ConfigError."""
    try:
        given = [int(word) for word in ranks.split(",")] if isinstance(ranks, str) else ranks
        counts = sorted({given} if isinstance(given, int) else {operator.index(count) for count in given})
    except (ValueError, TypeError):
        counts = []
    if not counts or counts[0] < 1:
        raise ConfigError(f"ranks must be positive integers, such as 1,2,4 or [1, 2, 4]; got {ranks!r}")
    return counts


def default_clusters(num_nodes: int, max_ranks: int) -> int:
    """K where the user does not choose: fine enough to balance the largest P, coarse enough to be clusters."""
    wanted = max(CLUSTERS_PER_RANK * max_ranks, min(num_nodes // NODES_PER_CLUSTER, MOST_CLUSTERS))
    return max(min(wanted, num_nodes // SMALLEST_CLUSTER), max_ranks)


def partition_graph(
    path: str | Path,
    ranks: list[int],
    *,
    method: str = AUTO,
    num_clusters: int | None = None,
    name: str | None = None,
    output: str | Path | None = None,
    options: PartitionOptions | None = None,
) -> dict[int, dict[str, Any]]:
    """Store maps for each number of ranks; returns {P: dict of attributes} and writes `output`, or `path` in place.

    Raises ConfigError for options and GraphError for graphs that do not allow it; then no file is changed.
    """
    options = options or PartitionOptions()
    maker = method_of(method, options.settings)
    if num_clusters is not None and num_clusters < 1:
        raise ConfigError(f"--clusters must be at least 1, got {num_clusters}")
    if name is not None and ("/" in name or name in (".", "..")):
        raise ConfigError(f"the name of a partitioning must not contain a slash, got {name!r}")
    if maker is not None and maker.NEW_FILE and output is None:
        raise ConfigError(f"{method} reorders the nodes, so it needs a new file: say -o FILE")
    if isinstance(maker, Given):
        if ranks != [maker.count] or num_clusters not in (None, maker.count):
            raise ConfigError(f"--method file has {maker.count} parts, one for each rank: say --ranks {maker.count}")
        num_clusters = maker.count
    GraphFile(path).file.close()  # what is no graph is not claimed
    check_outputs({"-o": output} if output else {"": path}, [path] if output else (), options.force or not output)
    with claimed(output or path):
        return _partition(path, ranks, maker, num_clusters, name, output, options)


def given_map(path: Path, parts: np.ndarray, name: str, reporter: Reporter) -> None:
    """Store an assignment of nodes to parts as the map `name`, in place. parts: int (n,) by original id."""
    maker = Given(parts=parts, NAME=name)
    options = PartitionOptions(balance="nodes", resources=Resources(reporter=reporter))
    _partition(path, [maker.count], maker, maker.count, name, None, options)


def _partition(
    path: str | Path,
    ranks: list[int],
    maker: Any,
    num_clusters: int | None,
    name: str | None,
    output: str | Path | None,
    options: PartitionOptions,
) -> dict[int, dict[str, Any]]:
    resources, seed = options.resources, options.seed
    with GraphFile(path) as file:
        stored, n = file.meta.num_clusters, file.meta.num_nodes
        always = isinstance(maker, Given) or (maker is not None and maker.NEW_FILE)
        if isinstance(maker, Given) and stored > 1 and output is None:
            raise GraphError(f"{path} has clusters already, which parts may cut; write a new file with -o")
        fresh = always or stored == 1 or (output is not None and num_clusters not in (None, stored))
        if fresh and num_clusters is None:
            num_clusters = default_clusters(n, ranks[-1])
        _check_counts(file, num_clusters, ranks, fresh)
        resources.reporter.stage(f"reading {path}")
        maker = maker or _automatic(file, fresh, resources)
        name = name or maker.NAME
        if fresh and num_clusters is not None and (num_clusters != stored or always):
            tools = {**file.meta.versions, **_tool_versions()}
            with working(output or path, resources) as work:
                data = clustered(file, maker, num_clusters, seed, work, tools)
                maps = _maps(data, maker, name, ranks, options)
                write_with_bar(output or path, data, maps, resources.reporter)
        else:
            data = load_graph(file, file.meta.num_edges * HELD_BYTES > memory_budget(resources.memory))
            maps = _maps(data, maker, name, ranks, options)
            file.file.close()
            add_partitionings(path, maps, output)
    return {count: attributes for _, count, _, attributes in maps}


def _automatic(file: GraphFile, fresh: bool, resources: Resources) -> Any:
    """The method that `auto` stands for: in a file with clusters the method of its maps."""
    if not fresh:
        return METHODS["kaminpar" if "kaminpar" in file.partitionings().keys() - {"metis"} else "metis"]
    degrees = np.diff(file.read("topology/indptr"))
    if not file.meta.undirected:
        degrees += np.diff(file.read("topology_out/indptr"))
    return choose(int(degrees.sum(dtype=np.int64)), degrees, memory_budget(resources.memory), resources.reporter)


def _check_counts(file: GraphFile, num_clusters: int | None, ranks: list[int], fresh: bool) -> None:
    """Raise GraphError for more ranks or clusters than there can be."""
    n, stored = file.meta.num_nodes, file.meta.num_clusters
    for count, what in ((ranks[-1], "ranks"), (num_clusters or 0, "clusters")):
        if count > n:
            raise GraphError(f"{count} {what} are more than the {n} nodes of {file.path}; ask for {n} or fewer")
    if not fresh and num_clusters not in (None, stored):
        raise GraphError(
            f"{file.path} already has {stored} clusters, not {num_clusters}; write a new file with -o, or "
            f"leave --clusters out"
        )
    have = num_clusters if fresh and num_clusters is not None else stored
    if ranks[-1] > have:
        raise GraphError(
            f"{ranks[-1]} ranks are more than the {have} clusters; ask for more with --clusters"
            f"{'' if fresh else ' and write a new file with -o'}, or use fewer ranks"
        )


def _maps(
    data: GraphData, maker: Any, name: str, ranks: list[int], options: PartitionOptions
) -> list[tuple[str, int, np.ndarray, dict[str, Any]]]:
    """[(name, P, map int32 (K,), attributes)]."""
    balance, seed = options.balance, options.seed
    offsets, indptr = data.cluster_offsets, data.edges.indptr
    sizes = cluster_sizes(balance, offsets, indptr, data.split)
    graph = data.cluster_graph
    if graph is None:
        parts = np.repeat(np.arange(len(sizes)), np.diff(offsets))
        graph = data.cluster_graph = cluster_graph(parts, len(sizes), data.edges, data.edges_out is not None)
    if balance == AUTO and is_skewed(np.diff(indptr)):
        balance = "both"
    graph = Csr(*without_diagonal(graph), len(sizes))
    maps = []
    for count in ranks:
        options.resources.reporter.stage(f"mapping {len(sizes):,} clusters to {count} ranks")

        def make(each: np.ndarray, count: int = count) -> np.ndarray:
            return maker.ranks(each, graph, count, seed)

        found = economical_map(make, sizes, graph, count) if balance == AUTO else make(sizes)
        quality = partition_quality(found, count, offsets, data.edges, data.edges_out)
        attributes = {
            "method": maker.NAME,
            "seed": seed,
            "balance": balance,
            **quality,
            "halo_rows_per_node": quality["halo_rows_total"] / data.num_nodes,
            "cut_fraction": quality["edge_cut"] / max(len(data.edges.indices), 1),
            "versions": " ".join(map(" ".join, versions(**_tool_versions()).items())),
        }
        maps.append((name, count, found, attributes))
        _warn(data, found, count, balance, options.resources.reporter)
    return maps


def _warn(data: GraphData, cluster_to_rank: np.ndarray, count: int, balance: str, reporter: Reporter) -> None:
    """Warn of hubs, and of ranks that are far from the mean."""
    offsets, indptr = data.cluster_offsets, data.edges.indptr
    nodes, edges = (np.bincount(cluster_to_rank, np.diff(each), count) for each in (offsets, indptr[offsets]))
    found = hubs(indptr, count)
    if len(found):
        degrees = np.diff(indptr)
        hub = int(np.argmax(degrees))
        home = rank_of(hub, cluster_to_rank, offsets)
        owners = rank_of(data.edges.indices[indptr[hub] : indptr[hub + 1]], cluster_to_rank, offsets)
        gathered = np.count_nonzero(owners == home) + len(np.setdiff1d(owners, home))
        reporter.warn(
            f"node {int(data.original_id[hub])} (its original id) has {degrees[hub]:,} in-edges, "
            f"{degrees[hub] * count / indptr[-1]:.2f} times the fair share of each of {count} ranks; where ranks send "
            f"sums, its own gathers {gathered:,} edges and sums for it"
        )
        edges = np.delete(edges, rank_of(found, cluster_to_rank, offsets))
    balanced = {"both": ("nodes", "edges"), AUTO: ("nodes",)}.get(balance, (balance,))
    for what, worst in (("nodes", imbalance(nodes)), ("in-edges", imbalance(edges))):
        if worst > WARN_IMBALANCE[what] and (what == "nodes" or "edges" in balanced):
            advice = "more clusters balance better" if what[-5:] in balanced else f"the map balances {balance}"
            reporter.warn(f"with {count} ranks the fullest has {worst:.3f} times the mean number of {what}; {advice}")


def _tool_versions() -> dict[str, str]:
    found = {}
    for name in ("pymetis", "kaminpar"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
