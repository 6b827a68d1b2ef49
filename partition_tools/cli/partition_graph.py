"""The sub-command `partition`: cluster a graph once, then store as many maps of its clusters to ranks as are wanted."""

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.schema import Csr, GraphData
from hpcgnn.graphfile.storage import GraphFile, add_partitionings
from hpcgnn.output_files import check_outputs
from hpcgnn.placement.clusters import economical_map, imbalance, without_diagonal
from hpcgnn.placement.nested import nested_map
from hpcgnn.placement.skew import is_skewed
from hpcgnn.terminal import tell
from partition_tools.canonical.canonical import versions
from partition_tools.graph.compute_nodes import check_grouping, node_attributes, node_table
from partition_tools.graph.loading import hold_neighbours, load_graph
from partition_tools.graph.quality import cluster_graph, cluster_sizes, hub_warning, hubs, partition_quality, rank_of
from partition_tools.graph.writing import write_with_bar
from partition_tools.partitioners.choice import choose
from partition_tools.partitioners.clustering import clustered
from partition_tools.partitioners.given import Given
from partition_tools.partitioners.methods import METHODS, REMOVED
from partition_tools.workspace.budget import memory_budget
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import fingerprint
from partition_tools.workspace.working import add_memory_options, working

HELP = "cluster the graph and map its clusters to ranks"
AUTO = "auto"
BALANCES = (AUTO, "both", "nodes", "edges", "train")
WARN_IMBALANCE = {"nodes": 1.05, "in-edges": 1.10}
HELD_BYTES = 32  # of memory for each edge that is read at once; otherwise each map reads the edges rank by rank
CLUSTERS_PER_RANK, NODES_PER_CLUSTER, SMALLEST_CLUSTER = 64, 1000, 4
MOST_CLUSTERS = 8192  # unless the ranks need more: the cluster graph of a skewed graph grows with their square
DESCRIPTION = (
    f"""Split a graph into K clusters with METIS or KaMinPar, and put its nodes in cluster order. For each number of
ranks P store a map of clusters to ranks under /partitionings/NAME/P. The first call on an imported file rewrites
it; later calls only add maps, so one file serves a whole scaling study.

K defaults to the larger of {CLUSTERS_PER_RANK} x the largest P and n / {NODES_PER_CLUSTER}, the latter at most
{MOST_CLUSTERS}: the graph of the clusters of a skewed graph grows with their square. Clusters get at least
{SMALLEST_CLUSTER} nodes as long as there are as many clusters as ranks. More clusters balance better; fewer are faster.

methods:
  auto             metis, or kaminpar where METIS would not fit the memory or take much longer; the default
"""
    + "\n".join(f"  {name:16} {module.HELP}" for name, module in METHODS.items())
    + """

Peak memory, first call: 12 E + 60 n bytes, and in METIS 45 to 150 E (64-bit ids, all levels of its multigrid; less
for skewed degrees) or in KaMinPar about 10 E. While the file is rewritten: 12 E + 60 n bytes and the features (4 n F
bytes, at most half of --memory). Weights and types add 8 E, twice that for directed graphs. If --memory is less, the
edges stay on disk (methods kaminpar, random-nodes), in up to 20 bytes an edge, and KaMinPar's memory
comes on top. Later calls: about 60 n bytes."""
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("graph", type=Path, metavar="GRAPH", help="graph file, changed in place unless -o is given")
    parser.add_argument("--ranks", required=True, metavar="LIST", help="numbers of ranks, such as 1,2,4,8")
    parser.add_argument(
        "--per-node",
        type=int,
        default=1,
        metavar="R",
        help="make the maps for nodes of R consecutive ranks: few edges between nodes, then few between ranks "
        "(default 1). Each number of --ranks is at most R or a multiple of it",
    )
    parser.add_argument("--clusters", dest="num_clusters", type=int, metavar="K", help="number of clusters")
    parser.add_argument("--method", metavar="{" + ",".join((AUTO, *METHODS)) + "}", default=AUTO)
    parser.add_argument(
        "--name", help="name of the partitioning in the file (default: the method; for auto, the one that was taken)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--balance",
        choices=BALANCES,
        default=AUTO,
        help="balance of ranks: nodes and in-edges (both), one of them, or training nodes. Default auto: both, unless "
        "equal in-edges would cost many halo rows and save little time",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the result here and leave GRAPH as it is"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing -o FILE")
    add_memory_options(parser)


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    options = {name: value for name, value in vars(arguments).items() if name not in ("graph", "ranks", "run")}
    results = partition_graph(arguments.graph, parse_ranks(arguments.ranks), reporter=reporter, **options)
    nodes = node_table({(arguments.name or each["method"], count): each for count, each in results.items()})
    tell("\n\n".join(filter(None, (quality_table(results), nodes))))
    return 0


def parse_ranks(text: str) -> list[int]:
    """Sorted distinct positive integers of a list such as "1,2,4"."""
    try:
        ranks = sorted({int(word) for word in text.split(",")})
    except ValueError:
        ranks = [0]
    if ranks[0] < 1:
        raise ConfigError(f"--ranks must be positive integers separated by commas, such as 1,2,4; got {text!r}")
    return ranks


def default_clusters(num_nodes: int, max_ranks: int) -> int:
    """K where the user does not choose: fine enough to balance the largest P, coarse enough to be clusters."""
    wanted = max(CLUSTERS_PER_RANK * max_ranks, min(num_nodes // NODES_PER_CLUSTER, MOST_CLUSTERS))
    return max(min(wanted, num_nodes // SMALLEST_CLUSTER), max_ranks)


def partition_graph(  # noqa: PLR0913 - callers name them
    path: str | Path,
    ranks: list[int],
    *,
    per_node: int = 1,
    num_clusters: int | None = None,
    method: str = AUTO,
    name: str | None = None,
    seed: int = 0,
    balance: str = AUTO,
    output: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
    memory: int | None = None,
    scratch: str | Path | None = None,
) -> dict[int, dict[str, Any]]:
    """Store maps for each number of ranks; returns {P: dict of attributes} and writes `output`, or `path` in place.

    per_node: consecutive ranks on a node, for maps of both (`hpcgnn.placement.nested`).
    memory, scratch: as for `import_graph`. Raises ConfigError for options and GraphError for graphs that do not allow
    it; then no file is changed.
    """
    reporter = reporter or Reporter()
    _check_options(method, balance, seed, num_clusters)
    maker = None if method == AUTO else METHODS[method]
    _check_per_node(per_node, ranks, maker)
    if name is not None and ("/" in name or name in (".", "..")):
        raise ConfigError(f"the name of a partitioning must not contain a slash, got {name!r}")
    if maker is not None and maker.NEW_FILE and output is None:
        raise ConfigError(f"{method} reorders the nodes, so it needs a new file: say -o FILE")
    GraphFile(path).file.close()  # what is no graph is not claimed
    check_outputs({"-o": output} if output else {"": path}, [path] if output else (), force or not output)
    with claimed(output or path):
        wanted = _Wanted(path, ranks, maker, name, num_clusters, per_node, seed, balance)
        return _partition(replace(wanted, output=output, memory=memory, scratch=scratch), reporter)


def given_map(path: Path, parts: np.ndarray, name: str, reporter: Reporter) -> None:
    """Store an assignment of nodes to parts as the map `name`, in place. parts: int (n,) by original id."""
    count = int(parts.max(initial=0)) + 1
    _partition(_Wanted(path, [count], Given(name, parts), name, count, balance="nodes"), reporter)


@dataclass(frozen=True)
class _Wanted:
    """The arguments of `partition_graph`, checked. maker: the method, None for `auto`."""

    path: str | Path
    ranks: list[int]
    maker: Any
    name: str | None
    num_clusters: int | None
    per_node: int = 1
    seed: int = 0
    balance: str = AUTO
    output: str | Path | None = None
    memory: int | None = None
    scratch: str | Path | None = None


def _partition(wanted: _Wanted, reporter: Reporter) -> dict[int, dict[str, Any]]:
    path, output, ranks, maker, seed = wanted.path, wanted.output, wanted.ranks, wanted.maker, wanted.seed
    num_clusters = wanted.num_clusters
    with GraphFile(path) as file:
        stored = file.meta.num_clusters
        n = file.meta.num_nodes
        if ranks[-1] > n:
            raise GraphError(f"{ranks[-1]} ranks are more than the {n} nodes of the graph; use fewer ranks")
        always = maker is not None and maker.NEW_FILE
        fresh = always or stored == 1 or (output is not None and num_clusters not in (None, stored))
        if fresh and num_clusters is None:
            num_clusters = default_clusters(n, ranks[-1])
        _check_clusters(path, n, stored, num_clusters, ranks, fresh)
        reporter.stage(f"reading {path}")
        maker = maker or _automatic(file, fresh, wanted.memory, reporter)
        name = wanted.name or maker.NAME
        if fresh and num_clusters is not None and (num_clusters != stored or always):
            tools = {**file.meta.versions, **_tool_versions()}
            identity = [fingerprint(path), maker.NAME, num_clusters, seed, versions(**_tool_versions())]
            with working(output or path, wanted.scratch, identity, wanted.memory, reporter) as work:
                data = clustered(file, maker, num_clusters, seed, work, tools)
                maps = _maps(data, maker, wanted, reporter)
                write_with_bar(output or path, data, [(name, p, *maps[p]) for p in maps], reporter)
        else:
            fresh = False
            data = load_graph(file, stored_edges=True)
            if len(data.edges.indices) * HELD_BYTES <= memory_budget(wanted.memory):
                hold_neighbours(data)
            maps = _maps(data, maker, wanted, reporter)
    if not fresh:
        add_partitionings(path, [(name, p, *maps[p]) for p in maps], output)
    return {p: attributes for p, (_, attributes) in maps.items()}


def _automatic(file: GraphFile, fresh: bool, memory: int | None, reporter: Reporter) -> Any:
    """The method that `auto` stands for: in a file with clusters the method of its maps."""
    if not fresh:
        return METHODS["kaminpar" if "kaminpar" in file.partitionings().keys() - {"metis"} else "metis"]
    degrees = np.diff(file.read("topology/indptr"))
    if not file.meta.undirected:
        degrees += np.diff(file.read("topology_out/indptr"))
    total = int(degrees.sum(dtype=np.int64))
    return choose(total, degrees, memory_budget(memory), reporter)


def _check_options(method: str, balance: str, seed: int, num_clusters: int | None) -> None:
    if method in REMOVED:
        raise ConfigError(f"--method {method} is gone: {REMOVED[method]}")
    if method != AUTO and method not in METHODS:
        raise ConfigError(f"unknown method {method!r}; expected one of {AUTO}, {', '.join(METHODS)}")
    if balance not in BALANCES:
        raise ConfigError(f"unknown balance {balance!r}; expected one of {', '.join(BALANCES)}")
    if not 0 <= seed < 2**31:
        raise ConfigError(f"the seed must be from 0 to 2^31 - 1, got {seed}")
    if num_clusters is not None and num_clusters < 1:
        raise ConfigError(f"--clusters must be at least 1, got {num_clusters}")


def _check_per_node(per_node: int, ranks: list[int], maker: Any) -> None:
    check_grouping(per_node, ranks)
    if per_node > 1 and maker is not None and not maker.NESTED:
        nested = ", ".join(name for name, module in METHODS.items() if module.NESTED)
        raise ConfigError(f"--per-node {per_node} needs a method that cuts few edges: {nested}; got {maker.NAME}")


def _check_clusters(
    path: str | Path, n: int, stored: int, num_clusters: int | None, ranks: list[int], fresh: bool
) -> None:
    if num_clusters is not None and num_clusters > n:
        raise GraphError(f"{num_clusters} clusters are more than the {n} nodes of the graph")
    if not fresh and num_clusters not in (None, stored):
        raise GraphError(
            f"{path} already has {stored} clusters, not {num_clusters}; write a new file with -o, or "
            f"leave --clusters out"
        )
    have = num_clusters if fresh and num_clusters is not None else stored
    if ranks[-1] > have:
        raise GraphError(
            f"{ranks[-1]} ranks are more than the {have} clusters; ask for more with --clusters"
            f"{'' if fresh else ' and write a new file with -o'}, or use fewer ranks"
        )


def _maps(
    data: GraphData, maker: Any, wanted: _Wanted, reporter: Reporter
) -> dict[int, tuple[np.ndarray, dict[str, Any]]]:
    """{P: (map int32 (K,), attributes)}."""
    balance, per_node = wanted.balance, wanted.per_node
    sizes = cluster_sizes(balance, data.cluster_offsets, data.edges.indptr, data.split)
    graph = data.cluster_graph
    if graph is None:
        parts = np.repeat(np.arange(len(sizes)), np.diff(data.cluster_offsets))
        graph = data.cluster_graph = cluster_graph(parts, len(sizes), data.edges, data.edges_out is not None)
    if balance == AUTO and is_skewed(np.diff(data.edges.indptr)):
        balance = "both"
    graph = Csr(*without_diagonal(graph), len(sizes))
    maps = {}
    for count in wanted.ranks:
        reporter.stage(f"mapping {len(sizes):,} clusters to {count} ranks")
        cluster_to_rank = _map(data, maker, replace(wanted, balance=balance), sizes, graph, count)
        quality = partition_quality(cluster_to_rank, count, data.cluster_offsets, data.edges, data.edges_out)
        nested: dict[str, Any] = {}
        if per_node > 1:
            nested = node_attributes(cluster_to_rank, count, per_node, data.cluster_offsets, data.edges)
        attributes = {
            "method": maker.NAME,
            "seed": wanted.seed,
            "balance": balance,
            **quality.attributes(),
            "halo_rows_per_node": quality.halo_rows_total / data.num_nodes,
            "cut_fraction": quality.edge_cut / max(len(data.edges.indices), 1),
            **nested,
            "versions": " ".join(map(" ".join, versions(**_tool_versions()).items())),
        }
        offsets, indptr = data.cluster_offsets, data.edges.indptr
        found, loads = hubs(indptr, count), np.bincount(cluster_to_rank, np.diff(indptr[offsets]), count)
        if len(found):
            reporter.warn(hub_warning(found, cluster_to_rank, offsets, data.edges, data.original_id))
            loads = np.delete(loads, rank_of(found, cluster_to_rank, offsets))
        balanced = {"both": ("nodes", "edges"), AUTO: ("nodes",)}.get(balance, (balance,))
        for what, worst in (("nodes", quality.imbalance_nodes), ("in-edges", imbalance(loads))):
            if worst > WARN_IMBALANCE[what] and (what == "nodes" or "edges" in balanced):
                advice = "more clusters balance better" if what[-5:] in balanced else f"the map balances {balance}"
                reporter.warn(
                    f"with {count} ranks the fullest has {worst:.3f} times the mean number of {what}; {advice}"
                )
        maps[count] = cluster_to_rank, attributes
    return maps


def _map(data: GraphData, maker: Any, wanted: _Wanted, sizes: np.ndarray, graph: Csr, num_ranks: int) -> np.ndarray:
    per_node, seed = wanted.per_node, wanted.seed

    def rows(parts: np.ndarray) -> int:
        quality = partition_quality(parts // per_node, num_ranks // per_node, data.cluster_offsets, data.edges)
        return quality.halo_rows_total

    def make(each: np.ndarray) -> np.ndarray:
        if per_node > 1:
            return nested_map(each, graph, num_ranks, per_node, seed, rows)
        return maker.ranks(each, graph, num_ranks, seed)

    return economical_map(make, sizes, graph, num_ranks) if wanted.balance == AUTO else make(sizes)


def _tool_versions() -> dict[str, str]:
    found = {}
    for name in ("pymetis", "kaminpar"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def quality_table(results: Mapping[int, Mapping[str, Any]]) -> str:
    """A table of {P: attributes} for people."""
    rows = [
        (
            p,
            a["imbalance_nodes"],
            a["imbalance_edges"],
            f"{100 * a['cut_fraction']:.1f} %",
            f"{a['halo_rows_total']:,}",
            f"{a['halo_rows_max']:,}",
            a["halo_rows_per_node"],
        )
        for p, a in sorted(results.items())
    ]
    return tabulate(
        rows,
        ("ranks", "imbalance (nodes)", "(edges)", "edges cut", "halo rows", "largest rank's", "halo rows per node"),
        floatfmt=".3f",
        stralign="right",
    )
