"""Nodes of several ranks on one machine: the communicator's idea of a node is split."""

import contextlib

from .in_process import ThreadCommunicator, emulated_node

#: The node of each rank: all on one, two nodes dealt in turn, nodes of consecutive ranks, of unequal numbers of them.
NODES = {
    "one node": lambda rank: 0,
    "two nodes": lambda rank: rank % 2,
    "pairs": lambda rank: rank // 2,
    "threes": lambda rank: rank // 3,
    "one alone": lambda rank: min(rank, 1),
    "all alone": lambda rank: rank,
}


@contextlib.contextmanager
def emulated(comm, node):
    """Let ranks with the same number share memory, and no others; gives the NodeMemory of this rank. Collective. node:
    number of this rank's node.
    """
    if isinstance(comm, ThreadCommunicator):
        with emulated_node(comm, node) as memory:
            yield memory
        return
    from mpi4py import MPI

    from hpcgnn.comm.node_memory import MpiNodeMemory

    ranks = MPI.COMM_WORLD.Split(node)
    before, comm._node_memory = comm._node_memory, MpiNodeMemory(comm, ranks)
    try:
        yield comm._node_memory
    finally:
        comm._node_memory.close()
        comm._node_memory = before
        ranks.Free()
