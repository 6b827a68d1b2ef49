"""Nodes of several ranks on one machine: the communicator's idea of a node is split."""

import contextlib

from mpi4py import MPI

from hpcgnn.comm.transports.node_memory import MpiNodeMemory


@contextlib.contextmanager
def emulated(comm, node):
    """Let ranks with the same number share memory, and no others; gives the NodeMemory of this rank. Collective. node:
    number of this rank's node.
    """
    ranks = MPI.COMM_WORLD.Split(node)
    before, comm._node_memory = comm._node_memory, MpiNodeMemory(comm, ranks)
    try:
        yield comm._node_memory
    finally:
        comm._node_memory.close()
        comm._node_memory = before
        ranks.Free()
