"""Graphs that many files train on. Properties are checked however slow the machine is."""

import graphs
import pytest
from hypothesis import settings

from partition_tools.cli.partition_graph import partition_graph

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")


@pytest.fixture(scope="session")
def graph(tmp_path_factory):
    """A graph of 300 nodes with maps for 1, 2 and 4 ranks, and one of another name for 3."""
    path = graphs.planted(tmp_path_factory.mktemp("core") / "g.h5", [1, 2, 4])
    partition_graph(path, [3], method="random-clusters")
    return path


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A smaller one with the oddities of real graphs, and maps for 2 ranks."""
    graph = graphs.with_task(graphs.random_undirected())
    return graphs.write_file(tmp_path_factory.mktemp("good") / "g.h5", graph, graphs.layout(graph, 2), 2)
