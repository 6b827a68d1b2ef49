"""Maps for compute nodes of several ranks: balance on both levels, and fewer rows between nodes by exact counts."""

import h5py
import numpy as np
import pytest
from test_balanced_maps import LIMITS, loads
from test_cluster_maps import cut, ring

from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.clusters import map_clusters
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.inspect_graph import inspect_graph
from partition_tools.cli.partition_graph import PartitionOptions, partition_graph
from partition_tools.generators.spec import Spec
from partition_tools.partitioners.nested import nested_map

RANKS, PER_NODE = 16, 4
ROWS = "halo_rows_between_compute_nodes", "compute_node_halo_rows_total"


@pytest.fixture(scope="module", params=["rmat", pytest.param("planted", marks=pytest.mark.slow)])
def path(request, tmp_path_factory):
    """A graph with a map of METIS as it always was, `flat`, and one for nodes of four ranks, `nested`."""
    path = tmp_path_factory.mktemp("nested") / "g.h5"
    generate_graph(request.param, path, Spec(nodes=1500, degree=12, features=4, classes=8, seed=1))
    partition_graph(path, [RANKS], method="metis", name="flat")
    partition_graph(path, [2, RANKS], method="metis", name="nested", options=PartitionOptions(per_node=PER_NODE))
    return path


def counted(path, name, ranks, per_node):
    """By sets of Python: (pairs of a rank and a row that it needs from another compute node, pairs of a compute node
    and such a row, rows that each compute node sends, edges between compute nodes).
    """
    with h5py.File(path) as file:
        rank = np.repeat(file[f"partitionings/{name}/{ranks}"][:], np.diff(file["clusters/offsets"][:])).tolist()
        indptr, sources = file["topology/indptr"][:], file["topology/indices"][:].tolist()
    by_rank, by_node, edges = set(), set(), 0
    for row in range(len(indptr) - 1):
        for source in sources[indptr[row] : indptr[row + 1]]:
            if rank[source] // per_node != rank[row] // per_node:
                by_rank.add((rank[row], source))
                by_node.add((rank[row] // per_node, source))
                edges += 1
    sent = np.bincount([rank[source] // per_node for _, source in by_node], minlength=-(-ranks // per_node))
    return len(by_rank), len(by_node), sent.tolist(), edges


def of_map(path, name, ranks=RANKS, per_node=PER_NODE):
    return inspect_graph(path, per_node=per_node)["partitionings"][name][str(ranks)]


def test_fewer_rows_between_nodes_than_a_flat_map(path):
    found = {}
    for name in ("flat", "nested"):
        figures, exact = of_map(path, name), counted(path, name, RANKS, PER_NODE)
        found[name] = [figures[key] for key in ROWS]
        assert [*found[name], figures["sent_rows_by_compute_node"], figures["compute_node_edge_cut"]] == list(exact)
    assert all(nested < flat for nested, flat in zip(found["nested"], found["flat"])), found


def test_balance_on_both_levels(path):
    figures = of_map(path, "nested")
    for level in ("", "compute_node_"):
        assert figures[f"{level}imbalance_nodes"] <= LIMITS[0] + 1e-9
        assert figures[f"{level}imbalance_edges"] <= LIMITS[1] + 1e-9
    by_rank, by_node = figures["balance"]["halo_rows_sent"]["imbalance"], figures["sent_rows_by_compute_node"]
    flat = of_map(path, "flat")["balance"]["halo_rows_sent"]["imbalance"]
    assert by_rank <= 1.1 * flat and max(by_node) <= 1.2 * np.mean(by_node)


def test_the_file_keeps_the_figures(path):
    with GraphFile(path) as file:
        stored = file.cluster_map("nested", RANKS)[1]
        assert stored["ranks_per_node"] == PER_NODE
        assert [stored[key] for key in ROWS] == list(counted(path, "nested", RANKS, PER_NODE)[:2])
        one = file.cluster_map("nested", 2)[1]
        assert one["ranks_per_node"] == PER_NODE and one["compute_node_halo_rows_total"] == 0, "both on one node"


def test_the_last_node_may_have_fewer_ranks(path):
    figures = of_map(path, "flat", per_node=6)
    exact = counted(path, "flat", RANKS, 6)
    assert [figures[key] for key in ROWS] == list(exact[:2])
    assert figures["sent_rows_by_compute_node"] == exact[2] and len(exact[2]) == 3


def test_verify_counts_the_rows_of_nodes(path, tmp_path, cli):
    assert cli("verify", path)[0] == 0
    wrong = tmp_path / "wrong.h5"
    wrong.write_bytes(path.read_bytes())
    with h5py.File(wrong, "r+", libver="latest") as file:
        file[f"partitionings/nested/{RANKS}"].attrs["compute_node_halo_rows_total"] += 1
    code, out, err = cli("verify", wrong)
    assert code and "compute_node_halo_rows_total is stated as" in out + err


REFUSED = {
    "--ranks 4,10 --per-node 4": "10 ranks do not fill nodes of 4 ranks; expected --ranks of at most 4",
    "--ranks 10 --per-node 4": "such as 8 or 12",
    "--ranks 4 --per-node 0": "--per-node must be at least 1, got 0",
    "--ranks 8 --per-node 4 --method random-clusters": "needs a method that cuts few edges: metis",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_is_refused(path, cli, options):
    before = path.read_bytes()
    code, _, err = cli("partition", "add", path, *options.split())
    assert code and REFUSED[options] in err and path.read_bytes() == before


@pytest.mark.parametrize(
    "ranks, per_node", [(12, 3), (63, 9), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((4, 2), (8, 8)))]
)
def test_onto_in_balance_and_the_same_each_time(ranks, per_node):
    sizes, graph = ring(64 if ranks == 63 else 256)
    sizes = np.stack([sizes, sizes[::-1]], axis=1)
    parts = nested_map(sizes, graph, ranks, per_node, seed=3)
    assert parts.dtype == np.int32 and sorted(set(parts)) == list(range(ranks))
    np.testing.assert_array_equal(parts, nested_map(sizes, graph, ranks, per_node, seed=3))
    if ranks < 63:  # else a rank is a cluster
        assert all(np.array(loads(parts, sizes, ranks)) <= np.array(LIMITS) + 1e-9)
    flat = map_clusters(sizes, graph, ranks, seed=3)
    both = [cut(graph, each) + cut(graph, each // per_node) for each in (parts, flat)]
    assert both[0] <= both[1], "the edges between ranks, and again those between nodes"
    if per_node in (1, ranks):
        np.testing.assert_array_equal(parts, flat)


def test_rows_decide_between_maps_in_balance():
    """Edges between nodes do not always show the rows: on an R-MAT a map with fewer edges once had more rows."""
    sizes, graph = ring(128)
    flat, by_edges = map_clusters(sizes, graph, 12), nested_map(sizes, graph, 12, 3)
    assert (by_edges != flat).any()
    chosen = nested_map(sizes, graph, 12, 3, rows=lambda parts: int(np.count_nonzero(parts != flat)))
    np.testing.assert_array_equal(chosen, flat)
