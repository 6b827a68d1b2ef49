"""Runs of links by the tests of other tasks' runs: resumed, leaving nothing, and with mistakes."""

import re

import pytest
from mpi.app import test_bad_input as mistakes
from mpi.conftest import graph, paths  # noqa: F401
from mpi.edge_rows import GRAPHS
from mpi.engine import test_resume
from mpi.engine.test_nothing_stays import path  # noqa: F401
from mpi.graph import test_edge_means, test_nothing_of_size_n
from mpi.nn import test_message_layers
from mpi.nn.test_message_layers import node  # noqa: F401
from mpi.training import configure

from hpcgnn.errors import ConfigError
from hpcgnn.extras.estimate.forecast import CountedGraph
from hpcgnn.extras.links.held_out import Drawn
from hpcgnn.graphfile.storage import GraphFile

pytestmark = pytest.mark.ranks(2)


@pytest.mark.smoke
def test_a_pause_changes_no_bit(comm, graph, shared_path, monkeypatch):  # noqa: F811
    options = {"task": "links", "scorer": "mlp", "features": "degree+learned:4", "layers": 2, "link_negatives": 50}
    monkeypatch.setitem(test_resume.PAUSED, "links", options)
    test_resume.test_a_pause_changes_no_bit(comm, graph, shared_path, "links")


@pytest.mark.slow
@pytest.mark.processes
def test_no_rank_holds_anything_as_long_as_all_nodes(comm, session_path, shared_path, monkeypatch):
    options = {"model": "gcn", "task": "links", "scorer": "mlp", "negative_pool": 256, "link_negatives": 100}
    monkeypatch.setitem(test_nothing_of_size_n.CASES, "links", options)
    test = test_nothing_of_size_n.test_no_rank_holds_anything_as_long_as_all_nodes
    test(comm, session_path, shared_path, monkeypatch, "links")


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_the_features_of_the_edges_that_remain(comm, edge_files, node, monkeypatch, name):  # noqa: F811
    """Against a list of all edges, and in means."""
    drawn = Drawn(17, (0.6, 0.2, 0.2))
    for self_loops in ("keep", "add"):
        layer = name, self_loops, "gine of edges"
        test_message_layers.test_layer(comm, edge_files, node, monkeypatch, *layer, task_edges=drawn)
    test_edge_means.test_columns_beside_a_list_of_all_edges(comm, edge_files, monkeypatch, name, drawn)


MISTAKES = [
    ({"link_split": "0.9/0.2/0.1"}, "--link-split: expected three shares that sum to 1"),
    ({"metric": "accuracy"}, "--metric accuracy does not fit the task links"),
    ({"halo": "least", "model": "gcn"}, "a task of labels; use --halo auto"),
    ({"link_split": "1/0/0", "patience": 3}, "expected a graph with validation edges"),
    ({"link_split": "given"}, "expected a graph file with held-out edges"),
    ({"schedule": "bns"}, "by the rows of both ends of each in every step"),
    ({"inductive": True}, "expected no --inductive"),
]


@pytest.mark.parametrize("options, words", MISTAKES)
def test_options_that_do_not_fit(comm, paths, session_path, shared_path, options, words):  # noqa: F811
    options = {"task": "links", **options}
    mistakes.test_options_that_do_not_fit(comm, paths, session_path, shared_path, "undirected", options, words)


def test_no_estimate(path):  # noqa: F811
    with GraphFile(path) as file, pytest.raises(ConfigError, match=re.escape("got --task links")):
        CountedGraph(file).forecast(configure(path, task="links"), 2)
