"""Every transport over the ranks of a test run, made without a launcher's help: MPI tells rank 0's port."""

import functools
import os

import torch
import torch.distributed as dist
from mpi4py import MPI

from hpcgnn.comm.transports.alltoall import pack
from hpcgnn.comm.transports.gloo import FOREVER, make_communicator
from hpcgnn.comm.transports.mpi import MpiCommunicator
from hpcgnn.comm.transports.oneccl import oneccl_communicator
from hpcgnn.comm.transports.oneccl_library import load
from hpcgnn.comm.transports.torch_verbs import Request, TorchCommunicator
from hpcgnn.errors import ConfigError


def over_gloo():
    """torch.distributed, by messages between two ranks."""
    world, store = MPI.COMM_WORLD, None
    if world.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=FOREVER)
    port = world.bcast(store and store.port)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False, timeout=FOREVER)
    return make_communicator(store, world.rank, world.size, "127.0.0.1", None)


class AllToAll(TorchCommunicator):
    """Exchanges as calls of all ranks alone, as oneCCL has them, which is not everywhere."""

    pairwise = False

    def _begin(self, outgoing, incoming, tag):
        if self.size == 1 and not outgoing and not incoming:
            return [], []
        packed = pack(outgoing, incoming, tag, self.size)
        told, result = torch.empty_like(packed.header), torch.empty(sum(packed.received), dtype=torch.uint8)
        first = self._parts(told, packed.header, [], [])
        return [
            _Arrival(first, self._parts(result, packed.given, packed.received, packed.sent), told, packed, result)
        ], []

    def _parts(self, result, given, coming, going):
        return self._all(self._group.alltoall_base, result, given, coming, going, dist.AllToAllOptions())


class _Arrival(Request):
    """An exchange under way: its header first, then its data, cut into the waiting tensors."""

    def __init__(self, first, second, told, packed, result):
        super().__init__(None, "")
        self._under_way = first, second, told, packed, result

    def complete(self):
        first, second, told, packed, result = self._under_way
        first.complete()
        packed.check(told.tolist())
        second.complete()
        packed.unpack(result)
        self.done = True


def over_alltoall():
    """gloo, by calls of all ranks alone."""
    by_pairs = over_gloo()
    return AllToAll(by_pairs._group, by_pairs.rank, by_pairs.size)


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
