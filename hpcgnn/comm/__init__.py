"""The one room that imports mpi4py. Everything above receives a `Communicator` as an argument."""

from hpcgnn.comm.communicator import Communicator, SoloCommunicator
from hpcgnn.comm.ledger import Ledger

__all__ = ["Communicator", "SoloCommunicator", "Ledger"]
