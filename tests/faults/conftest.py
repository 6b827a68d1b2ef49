"""The process that ranks are forked from, and graphs to train on."""

import graphs
import pytest
from core import forked


@pytest.fixture(scope="session")
def server():
    return forked.server()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with graph.h5, for 2, 4 and 32 ranks, and the runs that the tests of a file continue."""
    folder = tmp_path_factory.mktemp("faults")
    graphs.planted(folder / "graph.h5", [2, 4, 32], clusters=64, nodes=600, features=16, classes=4, seed=3)
    return folder
