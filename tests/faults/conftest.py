"""The process that ranks are forked from, and graphs to train on."""

import pytest
from core import forked

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec


@pytest.fixture(scope="session")
def server():
    return forked.server()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with graph.h5, for 2, 4 and 32 ranks, and the runs that the tests of a file continue."""
    folder = tmp_path_factory.mktemp("faults")
    generate_graph("planted", folder / "graph.h5", Spec(nodes=600, degree=6, features=16, classes=4, seed=3))
    partition_graph(folder / "graph.h5", [2, 4, 32], num_clusters=64)
    return folder
