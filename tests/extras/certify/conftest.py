"""A graph for tests without ranks."""

import pytest
from mpi.training import generated

from hpcgnn.comm.communicator import SoloCommunicator


@pytest.fixture
def graph_with_maps(tmp_path):
    """The file of a small graph with the map `metis` for one rank, 2 and 4."""
    from partition_tools.cli.partition_graph import partition_graph

    path = generated(SoloCommunicator(), tmp_path / "maps.h5")
    partition_graph(path, [2, 4])
    return path
