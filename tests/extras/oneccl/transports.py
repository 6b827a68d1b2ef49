"""Transports of calls of all ranks, for the tests of ranks.

pytest -p tests.extras.oneccl.transports --transport NAME
"""

import os

import pytest
from mpi4py import MPI

from hpcgnn.errors import ConfigError


def over_alltoall():
    """gloo by calls of all ranks alone, as ccl has them."""
    from mpi.transports import over_gloo

    from hpcgnn.extras.oneccl.ccl import AllToAllCommunicator

    by_pairs = over_gloo()
    return AllToAllCommunicator(by_pairs._group, by_pairs.rank, by_pairs.size)


def over_oneccl():
    """oneCCL together with MPI, where `env/build-oneccl.sh` has built its library."""
    from hpcgnn.extras.oneccl.communicator import oneccl_communicator
    from hpcgnn.extras.oneccl.library import load

    world = MPI.COMM_WORLD
    try:
        library = load()
    except ConfigError as error:
        pytest.skip(str(error))
    return oneccl_communicator(library, world, world.size, os.sched_getaffinity(0), 2.0)


def pytest_configure(config):
    """oneCCL waits by spinning and takes the cores of all other tests: it runs where it is asked for."""
    from mpi.transports import TRANSPORTS

    TRANSPORTS["all-to-all"] = over_alltoall
    if config.getoption("--transport") == "oneccl":
        TRANSPORTS["oneccl"] = over_oneccl
