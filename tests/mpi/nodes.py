"""Nodes of several ranks on one machine: the communicator is split, and each part has memory of its own."""

import contextlib

import numpy as np
from mpi4py import MPI

from hpcgnn.comm.transports.node_memory import MpiNodeMemory

# The node of each rank: all on one, two nodes dealt in turn, consecutive ranks, and unequal numbers of ranks.
NODES = {
    "one node": lambda rank: 0,
    "two nodes": lambda rank: rank % 2,
    "pairs": lambda rank: rank // 2,
    "threes": lambda rank: rank // 3,
    "one alone": lambda rank: min(rank, 1),
    "all alone": lambda rank: rank,
}


@contextlib.contextmanager
def split(comm, name):
    """The NodeMemory of this rank, which is that of its communicator as well. Collective."""
    ranks = MPI.COMM_WORLD.Split(NODES[name](comm.rank))
    before, comm._node_memory = comm._node_memory, MpiNodeMemory(comm, ranks)
    yield comm._node_memory
    comm._node_memory.close()
    comm._node_memory = before
    ranks.Free()


def node_of(comm, name):
    """int (P,): the number of the node of each rank, counted by their first ranks."""
    parts = [NODES[name](rank) for rank in range(comm.size)]
    return np.array([list(dict.fromkeys(parts)).index(part) for part in parts])
