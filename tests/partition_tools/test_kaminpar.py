"""KaMinPar: the files that it reads, what comes back, and which method is taken when nobody says."""

import sys

import numpy as np
import pytest
import scipy.sparse
from partition_helpers import odd_graph, save_npz, view

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import Edges
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.skew import is_skewed
from partition_tools import partition_graph as command
from partition_tools.generate_graph import generate_graph
from partition_tools.generators.spec import Spec
from partition_tools.import_graph import import_graph
from partition_tools.partition_graph import partition_graph
from partition_tools.partitioners import choice, kaminpar, metis
from partition_tools.partitioners.dissection import (
    BLOCK,
    dissect,
    edge_pull,
    edge_weights,
    node_weights,
    pattern,
)
from partition_tools.partitioners.parhip import write_parhip
from partition_tools.progress import Reporter


@pytest.fixture
def library():
    return pytest.importorskip("kaminpar", reason="the extra `kaminpar` is not installed")


def two_cliques(size=30):
    """Two cliques joined by one edge, nodes of both mixed: scipy CSR without a diagonal."""
    side = np.arange(2 * size) % 2
    dense = side[:, None] == side[None, :]
    dense[0, 1] = dense[1, 0] = True
    np.fill_diagonal(dense, False)
    return scipy.sparse.csr_matrix(dense.astype(np.uint8)), side


def blocks(array, size):
    return [array[start : start + size] for start in range(0, len(array), size)]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_file_is_what_kaminpar_reads(library, tmp_path, weighted):
    graph, _ = two_cliques(6)
    degrees = np.diff(graph.indptr)
    row = np.repeat(np.arange(12), degrees)
    nodes = np.arange(1, 13) * (1 << 33 if weighted == "heavy" else 5) if weighted else None
    edges = (row + graph.indices).astype(np.int64) if weighted else None
    path = tmp_path / "g.parhip"
    write_parhip(path, 12, degrees, blocks(graph.indices, 7), nodes, None if edges is None else blocks(edges, 5))
    for compress in (False, True):
        read = library.load_graph(str(path), library.GraphFileFormat.PARHIP, compress)
        assert (read.n(), read.m()) == (12, graph.nnz)
        for node in range(12):
            there = slice(graph.indptr[node], graph.indptr[node + 1])
            weights = edges[there] if weighted else np.ones(degrees[node], int)
            assert sorted(read.neighbors(node)) == list(zip(graph.indices[there].tolist(), weights.tolist()))
            assert read.node_weight(node) == (nodes[node] if weighted else 1)


def test_heavy_nodes_have_wide_weights(library, tmp_path):
    weights = np.array([1, 1 << 40])
    write_parhip(tmp_path / "g", 2, np.array([1, 1]), [np.array([1, 0])], weights)
    read = library.load_graph(str(tmp_path / "g"), library.GraphFileFormat.PARHIP, True)
    assert [read.node_weight(node) for node in (0, 1)] == weights.tolist()


def test_counts_that_disagree(tmp_path):
    with pytest.raises(GraphError, match="expected 4 neighbours, got 2"):
        write_parhip(tmp_path / "g", 2, np.array([2, 2]), [np.array([1, 0])])
    with pytest.raises(GraphError, match="each of 3 nodes, got 2"):
        write_parhip(tmp_path / "g", 3, np.array([1, 1]), [np.array([1, 0])])
    with pytest.raises(GraphError, match="expected 2 edge weights, got 1"):
        write_parhip(tmp_path / "g", 2, np.array([1, 1]), [np.array([1, 0])], None, [np.array([1])])


def test_an_obvious_cut(library, tmp_path):
    graph, side = two_cliques()
    path = tmp_path / "g.parhip"
    write_parhip(path, 60, np.diff(graph.indptr), [graph.indices])
    parts = kaminpar.kaminpar_split(path, 2, seed=4, threads=1)
    assert parts.dtype == np.int32 and (np.array_equal(parts, side) or np.array_equal(parts, 1 - side))
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(parts, kaminpar.kaminpar_split(path, 2, seed=4, threads=1))


def test_unequal_shares_and_weights(library, tmp_path):
    random = np.random.default_rng(0)
    matrix = scipy.sparse.random(600, 600, 0.02, random_state=1, format="csr")
    graph = ((matrix + matrix.T) > 0).astype(np.uint8).tolil()
    graph.setdiag(0)
    graph = graph.tocsr()
    graph.eliminate_zeros()
    weights = random.integers(1, 9, 600)
    write_parhip(tmp_path / "g", 600, np.diff(graph.indptr), [graph.indices], weights)
    parts = kaminpar.kaminpar_split(tmp_path / "g", 3, threads=1, shares=np.array([1, 2, 3]))
    held = np.bincount(parts, weights, 3) / weights.sum()
    assert (held <= np.array([1, 2, 3]) / 6 * 1.03 + 9 / weights.sum()).all()


def test_failures_say_what_to_do(library, tmp_path, monkeypatch):
    with pytest.raises(GraphError, match="1 to 256 parts, got 257"):
        kaminpar.kaminpar_split(tmp_path / "g", 257)
    (tmp_path / "g").write_bytes(b"nonsense")
    with pytest.raises(GraphError, match="not a whole ParHIP file"):
        kaminpar.kaminpar_split(tmp_path / "g", 2)
    write_parhip(tmp_path / "g", 2, np.array([1, 1]), [np.array([1, 0])])
    with pytest.raises(GraphError, match="KaMinPar ended with code 1 and said: .*reseed.* --method metis"):
        kaminpar.kaminpar_split(tmp_path / "g", 2, seed=-(2**40))
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    with pytest.raises(GraphError, match=r"pip install 'hpcgnn\[kaminpar\]'"):
        kaminpar.kaminpar_split(tmp_path / "g", 2)


def test_without_kaminpar(fails, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    src, dst = odd_graph(200, 900)
    import_graph(save_npz(tmp_path / "g.npz", src, dst, 200), tmp_path / "g.h5")
    assert "not installed" in fails("partition", tmp_path / "g.h5", "--ranks", 2, "--method", "kaminpar")


@pytest.mark.parametrize("kind", ["undirected", "directed", "edgeless"])
def test_partitioning_with_kaminpar(library, cli, tmp_path, monkeypatch, kind):
    """All but the smallest parts go to KaMinPar here; the graph stays the same, and no cluster is empty."""
    monkeypatch.setattr(kaminpar, "SMALL", 100)
    src, dst = odd_graph(200, 900, symmetric=kind == "undirected")
    if kind == "edgeless":
        src, dst = src[:0], dst[:0]
    import_graph(save_npz(tmp_path / "g.npz", src, dst, 200), tmp_path / "g.h5")
    before = view(tmp_path / "g.h5")
    results = partition_graph(tmp_path / "g.h5", [2, 4], method="kaminpar")
    after = view(tmp_path / "g.h5")
    assert before.edges == after.edges and results[4]["method"] == "kaminpar"
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.partitionings() == {"kaminpar": [2, 4]} and (np.diff(file.read("clusters/offsets")) > 0).all()
    assert cli("verify", tmp_path / "g.h5")[0] == 0
    assert cli("partition", tmp_path / "g.h5", "--ranks", 3)[0] == 0  # joins the maps that are there
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.partitionings() == {"kaminpar": [2, 3, 4]}


def test_as_good_as_metis(library, tmp_path, monkeypatch):
    monkeypatch.setattr(kaminpar, "SMALL", 20_000)
    found = {}
    for method in ("metis", "kaminpar"):
        path = tmp_path / f"{method}.h5"
        generate_graph("planted", path, Spec(nodes=6000, degree=10, features=4, classes=6, seed=2))
        found[method] = partition_graph(path, [4], method=method)[4]["halo_rows_total"]
    assert found["kaminpar"] < 1.15 * found["metis"]


@pytest.mark.parametrize("clusters", [1, 7, 64, 300])
def test_dissection_into_any_number_of_clusters(clusters):
    src, dst = odd_graph(300, 2000, symmetric=True)
    matrix = scipy.sparse.csr_matrix((np.ones(len(src)), (dst, src)), shape=(300, 300))
    matrix.sum_duplicates()
    graph = pattern(Edges(matrix.indptr, matrix.indices), None)
    assert graph.diagonal().sum() == 0 and (graph != graph.T).nnz == 0 and graph.data.dtype == np.uint8
    order, offsets = dissect(graph, clusters, metis.split)
    assert sorted(order) == list(range(300)) and len(offsets) == clusters + 1 and (np.diff(offsets) > 0).all()
    again = dissect(graph, clusters, metis.split)
    np.testing.assert_array_equal(order, again[0])


def test_metis_has_nothing_to_say_about_hubs(capfd):
    """A star: its centre outweighs a part, and METIS once complained of graphs with no nodes on the terminal."""
    star = scipy.sparse.lil_matrix((40, 40), dtype=np.uint8)
    star[0, 1:] = star[1:, 0] = 1
    order, offsets = dissect(star.tocsr(), 20, metis.split)
    assert sorted(order) == list(range(40)) and (np.diff(offsets) > 0).all()
    assert capfd.readouterr().out == ""


def test_weights_of_nodes_and_edges():
    np.testing.assert_array_equal(node_weights(np.array([0, 2, 10])), [1, 1, 1])  # of a mild graph
    np.testing.assert_array_equal(node_weights(np.zeros(3, int)), [1, 1, 1])
    skewed = np.array([3000, *[1] * 999])
    np.testing.assert_array_equal(node_weights(skewed), skewed + 4)
    isolated = np.concatenate([skewed, np.zeros(1000, int)])
    np.testing.assert_array_equal(node_weights(isolated), isolated + 1)  # half of the mean degree, 2, and less
    graph, _ = two_cliques(6)
    degrees, whole = np.diff(graph.indptr), np.zeros(graph.nnz, np.uint8)
    for start, weights in edge_weights(edge_pull(degrees), graph.indptr, blocks(graph.indices, 7)):
        whole[start : start + len(weights)] = weights
    assert len(whole) == graph.nnz < BLOCK and (whole > 0).all()
    heavy = scipy.sparse.csr_matrix((whole, graph.indices, graph.indptr))
    assert (heavy != heavy.T).nnz == 0 and heavy[0, 2] < heavy[2, 4]
    assert is_skewed(np.array([10_000] + [1] * 9999)) and not is_skewed(np.full(100, 7)) and not is_skewed(np.zeros(5))


MILD, SKEWED = np.full(10_000, 8), np.array([60_000] + [2] * 9_999)


def test_the_forecast_grows_with_edges_and_skew():
    small, large = choice.forecast(10_000, 10**6, MILD), choice.forecast(10_000, 10**8, MILD)
    skewed = choice.forecast(10_000, 10**8, SKEWED)
    assert large.bytes == 100 * small.bytes and large.seconds == pytest.approx(100 * small.seconds)
    assert 1.3 * large.bytes < skewed.bytes < 3 * large.bytes and skewed.seconds > 4 * large.seconds


@pytest.mark.parametrize(
    "edges, degrees, memory, there, expected",
    [
        (10**6, MILD, 8 << 30, True, "metis"),
        (10**6, MILD, 64 << 20, True, "kaminpar"),
        (10**6, MILD, 64 << 20, False, None),
        (10**8, SKEWED, 1 << 40, True, "kaminpar"),
        (10**8, SKEWED, 1 << 40, False, "warned"),
        (10**8, MILD, 1 << 40, True, "metis"),
    ],
)
def test_what_auto_stands_for(monkeypatch, edges, degrees, memory, there, expected):
    monkeypatch.setattr(kaminpar, "installed", lambda: there)
    monkeypatch.setattr(choice, "available_memory", lambda: memory)
    reporter = Reporter()
    if expected is None:
        with pytest.raises(
            GraphError, match=r"0.1 GiB .* 0.1 GiB may be taken; install KaMinPar.*pip install.*restreaming"
        ):
            choice.choose(len(degrees), edges, degrees, memory, reporter)
        monkeypatch.setattr(choice, "available_memory", lambda: 1 << 40)  # more than may be taken by default
        assert choice.choose(len(degrees), edges, degrees, memory, reporter).NAME == "metis" and reporter.warnings
        return
    found = choice.choose(len(degrees), edges, degrees, memory, reporter)
    assert found.NAME == ("metis" if expected == "warned" else expected)
    assert bool(reporter.warnings) == (expected == "warned")
    assert expected != "warned" or "minutes; KaMinPar would be faster" in reporter.warnings[0]


def test_auto_takes_kaminpar_where_metis_does_not_fit(library, cli, tmp_path, monkeypatch):
    src, dst = odd_graph(200, 900)
    import_graph(save_npz(tmp_path / "g.npz", src, dst, 200), tmp_path / "g.h5")
    monkeypatch.setattr(command, "memory_budget", lambda text: 1000)
    code, _, err = cli("partition", tmp_path / "g.h5", "--ranks", 2)
    assert code == 0 and len([line for line in err.splitlines() if "with KaMinPar: METIS would take" in line]) == 1
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.partitionings() == {"kaminpar": [2]}
