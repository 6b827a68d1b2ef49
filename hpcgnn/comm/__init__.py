"""Messages between ranks: the launcher, the transport, the watchdog. The one room that imports mpi4py."""

from hpcgnn.comm.communicator import Communicator, Exchange, Finished, Message, PersistentExchange
from hpcgnn.comm.ledger import Ledger
from hpcgnn.comm.solo import SoloCommunicator

__all__ = ["Communicator", "Exchange", "Finished", "Message", "PersistentExchange", "SoloCommunicator", "Ledger"]
