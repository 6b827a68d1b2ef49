"""Every transport over the ranks of a test run, made without a launcher's help: MPI tells rank 0's port."""

import functools
import os

import torch.distributed as dist
from mpi4py import MPI

from hpcgnn.comm.transports.mpi import MpiCommunicator
from hpcgnn.comm.transports.oneccl import oneccl_communicator
from hpcgnn.comm.transports.oneccl_library import load
from hpcgnn.comm.transports.torch_alltoall import AllToAllCommunicator
from hpcgnn.comm.transports.torch_backends import FOREVER, make_communicator
from hpcgnn.errors import ConfigError


def over_gloo():
    """torch.distributed, by messages between two ranks."""
    world, store = MPI.COMM_WORLD, None
    if world.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=FOREVER)
    port = world.bcast(store and store.port)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False, timeout=FOREVER)
    return make_communicator("gloo", store, world.rank, world.size, "127.0.0.1", None)


def over_alltoall():
    """The same library, by calls of all ranks alone, as ccl has them."""
    by_pairs = over_gloo()
    return AllToAllCommunicator(by_pairs._group, by_pairs.rank, by_pairs.size)


def over_oneccl():
    """oneCCL beside MPI, where `env/build-oneccl.sh` has built its library."""
    world = MPI.COMM_WORLD
    return oneccl_communicator(load(), world, world.size, os.sched_getaffinity(0), 2.0)


def has_oneccl():
    """Whether oneCCL's library was built, for these sources."""
    try:
        load()
    except ConfigError:
        return False
    return True


TRANSPORTS = {
    "polite": functools.partial(MpiCommunicator, MPI.COMM_WORLD, crowding=2.0),
    "spinning": functools.partial(MpiCommunicator, MPI.COMM_WORLD, crowding=1.0),
    "gloo": over_gloo,
    "all-to-all": over_alltoall,
    "oneccl": over_oneccl,
}
