"""Every transport over the ranks of a test run, made without a launcher's help: MPI sends rank 0's port."""

import functools

import torch.distributed as dist
from mpi4py import MPI

from hpcgnn.comm.mpi import MpiCommunicator
from hpcgnn.comm.torch_transport import FOREVER, gloo_communicator


def over_gloo():
    """torch.distributed, by messages between two ranks."""
    world, store = MPI.COMM_WORLD, None
    if world.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=FOREVER)
    port = world.bcast(store and store.port)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False, timeout=FOREVER)
    return gloo_communicator(store, world.rank, world.size, "127.0.0.1", None)


TRANSPORTS = {
    "polite": functools.partial(MpiCommunicator, MPI.COMM_WORLD, crowding=2.0),
    "spinning": functools.partial(MpiCommunicator, MPI.COMM_WORLD, crowding=1.0),
    "gloo": over_gloo,
}
