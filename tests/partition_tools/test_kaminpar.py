"""KaMinPar: the files that it reads, its result, and the default method."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from partition_helpers import odd_graph, plenty, save_npz, view

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import Edges
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli import partition_graph as command
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.partitioners import choice, kaminpar, metis, metis_process
from partition_tools.partitioners.dissection import dissected
from partition_tools.partitioners.parhip import write_parhip
from partition_tools.partitioners.pattern import whole_pattern
from partition_tools.partitioners.request import ClusterRequest
from partition_tools.partitioners.weights import clusters_of_connected, with_isolated
from partition_tools.workspace.progress import Reporter


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
    nodes = np.arange(1, 13) * 5
    edges = (row + graph.indices).astype(np.int64) if weighted else None
    path = tmp_path / "g.parhip"
    write_parhip(path, degrees, blocks(graph.indices, 7), nodes, None if edges is None else blocks(edges, 5))
    for compress in (False, True):
        read = library.load_graph(str(path), library.GraphFileFormat.PARHIP, compress)
        assert (read.n(), read.m()) == (12, graph.nnz)
        for node in range(12):
            there = slice(graph.indptr[node], graph.indptr[node + 1])
            weights = edges[there] if weighted else np.ones(degrees[node], int)
            assert sorted(read.neighbors(node)) == list(zip(graph.indices[there].tolist(), weights.tolist()))
            assert read.node_weight(node) == nodes[node]


@pytest.fixture
def one_core(monkeypatch):
    """With one thread KaMinPar repeats itself."""
    monkeypatch.setattr("hpcgnn.cores.usable", lambda: frozenset({0}))


def test_unequal_shares_and_weights(library, one_core, tmp_path):
    graph, _ = two_cliques(300)
    weights = np.random.default_rng(0).integers(1, 9, 600)
    write_parhip(tmp_path / "g", np.diff(graph.indptr), [graph.indices], weights)
    parts = kaminpar.kaminpar_split(tmp_path / "g", np.array([1, 2, 3]))
    held = np.bincount(parts, weights, 3) / weights.sum()
    assert (held <= np.array([1, 2, 3]) / 6 * 1.03 + 9 / weights.sum()).all()


def test_failures_say_what_to_do(library, tmp_path, monkeypatch):
    write_parhip(tmp_path / "g", np.array([1, 1]), [np.array([1, 0])], np.ones(2, int))
    with pytest.raises(GraphError, match="KaMinPar ended with code 1 and said: .*reseed.* --method metis"):
        kaminpar.kaminpar_split(tmp_path / "g", np.ones(2), seed=-(2**40))
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    with pytest.raises(GraphError, match=r"pip install 'hpcgnn\[kaminpar\]'"):
        kaminpar.clusters(ClusterRequest(star(2, 0), None, np.arange(3), 2), plenty())


@pytest.mark.parametrize("kind", ["directed", "edgeless"])
def test_partitioning_with_kaminpar(library, cli, tmp_path, monkeypatch, kind):
    """All but the smallest parts go to KaMinPar here; the graph stays the same, and no cluster is empty."""
    monkeypatch.setattr(kaminpar, "SMALL", 100)
    src, dst = odd_graph(200, 900)
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
    assert cli("partition", "add", tmp_path / "g.h5", "--ranks", 3)[0] == 0  # joins the maps that are there
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.partitionings() == {"kaminpar": [2, 3, 4]}


def star(leaves, isolated):
    """Edges of a star, its centre node 0, and nodes without edges."""
    indptr = np.concatenate([[0], leaves + np.arange(leaves + 1), np.full(isolated, 2 * leaves)])
    return Edges(indptr, np.concatenate([np.arange(1, leaves + 1), np.zeros(leaves, int)]).astype(np.int32))


@pytest.mark.parametrize(
    "leaves, isolated, clusters", [(39, 0, 1), (39, 0, 20), (10, 30, 2), (10, 30, 40), (30, 2, 20), (20, 0, 21)]
)
def test_metis_has_nothing_to_say_about_hubs(capfd, leaves, isolated, clusters):
    """A star: its centre outweighs a part, and METIS once complained of graphs with no nodes on the terminal."""
    n = 1 + leaves + isolated
    asked = ClusterRequest(star(leaves, isolated), None, np.arange(n), clusters)
    order, offsets = dissected(asked, metis.split, plenty())
    assert sorted(order) == list(range(n)) and len(offsets) == clusters + 1 and (np.diff(offsets) > 0).all()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("directed", [False, True])
def test_what_of_a_skewed_graph_is_split(directed):
    """Two hubs with leaves, joined by an edge that is left out; a node without edges."""
    leaves = 2000
    src = np.concatenate([np.arange(leaves), [leaves, leaves, leaves]])
    dst = np.concatenate([leaves + np.arange(leaves) % 2, [leaves + 1, leaves, leaves + 1]])  # a self loop, a parallel
    n = leaves + 3
    both = (src, dst) if directed else (np.r_[src, dst], np.r_[dst, src])

    def grouped(key, other):
        order = np.lexsort((other, key))
        return Edges(np.concatenate([[0], np.cumsum(np.bincount(key, minlength=n))]), other[order].astype(np.int32))

    edges_out = grouped(*both) if directed else None
    part = whole_pattern(grouped(*both[::-1]), edges_out, plenty())
    assert part.nodes.tolist() == list(range(n - 1)) and len(part.indptr) == n
    expected = {(leaf, leaves + leaf % 2) for leaf in range(leaves)}
    pairs = list(zip(np.repeat(np.arange(n - 1), part.degrees), part.indices))
    assert set(pairs) == expected | {pair[::-1] for pair in expected} and len(pairs) == 2 * leaves
    assert (np.concatenate(list(part.edge_weights())) == 16).all()


@pytest.mark.parametrize("clusters, of_rest", [(2, 0), (8, 0), (30, 20), (600, 200), (1000, 500), (1500, 1000)])
def test_nodes_without_edges_make_clusters_of_their_own(clusters, of_rest):
    """Two nodes of three have no edges."""
    total = 30 if clusters < 512 else 1500
    nodes = np.arange(total // 3) * 2 + 1
    count = clusters_of_connected(total, total // 3, clusters)
    assert clusters - count == of_rest
    order, offsets = with_isolated(np.array_split(nodes, count), nodes, total, clusters)
    assert sorted(order) == list(range(total)) and len(offsets) == clusters + 1 and (np.diff(offsets) > 0).all()


@pytest.mark.parametrize("memory, available, there, expected", [(2, 2, True, "metis"), (1, 2, False, "metis")])
def test_auto_takes_metis_where_it_fits(monkeypatch, memory, available, there, expected):
    monkeypatch.setattr(kaminpar, "installed", lambda: there)
    monkeypatch.setattr(choice, "available_memory", lambda: available << 30)
    assert choice.choose(10**7, np.full(10_000, 8), memory << 30, Reporter()).NAME == expected
    with pytest.raises(GraphError, match=r"10.7 GiB, and 1.0 GiB may be taken; install KaMinPar.*pip install"):
        monkeypatch.setattr(kaminpar, "installed", lambda: False)
        choice.choose(10**8, np.full(10_000, 8), 1 << 30, Reporter())


def test_auto_takes_kaminpar_where_metis_does_not_fit(library, cli, tmp_path, monkeypatch):
    src, dst = odd_graph(200, 900)
    import_graph(save_npz(tmp_path / "g.npz", src, dst, 200), tmp_path / "g.h5")
    monkeypatch.setattr(command, "memory_budget", lambda text: 1000)
    code, _, err = cli("partition", "add", tmp_path / "g.h5", "--ranks", 2)
    assert code == 0 and len([line for line in err.splitlines() if "with KaMinPar: METIS would take" in line]) == 1
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.partitionings() == {"kaminpar": [2]}


CRASHES = """
import os, pickle, signal, sys
tries = open(sys.argv[1], "a+")
*_, weights, parts, seed, vertices, shares = pickle.load(sys.stdin.buffer)
tries.write(f"{seed} {weights is None}\\n"), tries.flush()
if seed < int(sys.argv[2]):
    os.kill(os.getpid(), signal.SIGSEGV)
pickle.dump([seed] * len(vertices), sys.stdout.buffer)
"""


def ask(seed):
    """METIS's answer for a graph of six nodes."""
    graph, _ = two_cliques(3)
    return metis_process.metis_apart(graph.indptr, graph.indices, graph.data, seed, np.ones(6, int), np.ones(2))


@pytest.mark.parametrize("good", [5, 8, 9])
def test_metis_that_crashes_is_asked_again(tmp_path, monkeypatch, good):
    """Its process ends as METIS's does, until it gets the seed `good`."""
    program = CRASHES

    def start():
        command = [sys.executable, "-c", program, str(tmp_path / "tries"), str(good)]
        metis_process._running[:] = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)]
        return metis_process._running[0]

    metis_process.end()
    monkeypatch.setattr(metis_process, "_process", start)
    if good == 9:
        with pytest.raises(GraphError, match="METIS ended by signal 11 on a graph of 6 nodes, 4 times; try another"):
            ask(5)
    else:
        assert ask(5).tolist() == [good] * 6
    tries = (tmp_path / "tries").read_text().split("\n")[:-1]
    assert tries == [f"{seed} {seed == 8}" for seed in range(5, min(good, 8) + 1)]
    metis_process.end()
    program = CRASHES.replace("SIGSEGV", "SIGKILL")
    with pytest.raises(GraphError, match="killed .* for want of memory; --method kaminpar"):
        ask(0)
    metis_process.end()


def test_an_answer_that_nobody_took_is_no_answer_to_the_next(monkeypatch):
    """A call that was interrupted while METIS worked."""

    def interrupted(file):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(metis_process.pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ask(0)
        assert not metis_process._running
    assert len(ask(0)) == 6


def test_nothing_is_imported_from_the_current_folder(library, tmp_path, monkeypatch):
    graph, _ = two_cliques()
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    metis_process.end()
    assert len(ask(0)) == 6
    write_parhip(tmp_path / "g", np.diff(graph.indptr), [graph.indices], np.ones(60, int))
    assert len(kaminpar.kaminpar_split(tmp_path / "g", np.ones(2))) == 60
