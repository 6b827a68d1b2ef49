"""Scores of listed pairs, the best targets of nodes, and held-out edges as tables, against all pairs of nodes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mpi.training import build_trainer, configure

from hpcgnn.extras.links import ranks as pair_ranks
from hpcgnn.extras.links import tables as link_scores

from .given import GRAPHS, written_with_links
from .test_links import drawn_splits

pytestmark = pytest.mark.ranks(1, 3)
NAME = "random directed weighted"


@pytest.fixture(scope="module")
def written(comm, session_path):
    """written(tables of a run, options) -> the lines of the file, in words; and written.given, the held-out edges."""
    given, path = written_with_links(comm, session_path, "scores")[NAME, "none"]

    def write(tables, map_name="one empty", **options):
        trainer = build_trainer(comm, configure(path, model="sage", task="links", **options), map_name, 7)
        with torch.no_grad():
            link_scores.write_table(
                str(session_path / "out.csv"), tables(SimpleNamespace(trainer=trainer)), "last", path, comm
            )
        comm.barrier()
        found = np.loadtxt(session_path / "out.csv", str, delimiter=",", skiprows=1)
        comm.barrier()
        return found

    write.given = given
    return write


@pytest.mark.parametrize("map_name", ["random", "one empty"])
def test_the_scores_of_pairs_and_the_best_targets(comm, written, monkeypatch, map_name):
    """Whole numbers tie often: then the smaller id is better, in each tile and on each rank."""
    monkeypatch.setattr(link_scores, "_SOURCES", 20)
    monkeypatch.setattr(pair_ranks, "edge_tile_bytes", lambda: 8 * 20 * 7)
    random, graph = np.random.default_rng(0), GRAPHS[NAME]
    n = graph.num_nodes
    rows, pairs = random.integers(-2, 3, (n, 3)), random.integers(0, n, (60, 2))
    table, known = rows @ rows.T, set(zip(graph.src.tolist(), graph.dst.tolist()))

    def h(trained):
        return torch.from_numpy(rows).float()[trained.trainer.local.original_id]

    listed = pairs if comm.rank == 0 else pairs[:0]
    found = written(lambda trained: link_scores.pair_table(trained, h(trained), listed), map_name)
    expected = np.column_stack([pairs, table[pairs[:, 0], pairs[:, 1]]])
    np.testing.assert_array_equal(found.astype(float), expected)
    for nodes in (None, np.array([3, 4, n - 1])):
        mine = nodes if comm.rank == 0 else None
        found = written(lambda trained: link_scores.best_tables(trained, h(trained), mine, 6), map_name)
        expected = []
        for source in range(n) if nodes is None else nodes.tolist():
            free = [node for node in range(n) if node != source and (source, node) not in known]
            best = sorted(free, key=lambda node: (-table[source, node], node))[:6]
            expected += [(source, node, table[source, node]) for node in best]
        np.testing.assert_array_equal(found.astype(float), expected)


@pytest.mark.parametrize("link_split", ["given", "0.7/0.2/0.1"])
def test_the_held_out_edges(comm, written, monkeypatch, link_split):
    """Given or drawn, by split and source, some at a time."""
    monkeypatch.setattr(link_scores, "_PIECE", 7)
    held = written.given if link_split == "given" else drawn_splits(GRAPHS[NAME])
    expected = [(str(one), str(other), split) for split in held for one, other in sorted(held[split]["edge"].tolist())]
    assert written(link_scores.held_tables, link_split=link_split).tolist() == list(map(list, expected))
