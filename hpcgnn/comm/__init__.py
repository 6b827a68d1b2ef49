"""Messages between ranks: the launcher, the transport, the watchdog. The one room that imports mpi4py.

Its names are loaded when they are asked for: the launcher is asked before torch is loaded.
"""

from typing import TYPE_CHECKING

from hpcgnn.exports import lazy_exports

if TYPE_CHECKING:
    from hpcgnn.comm.communicator import Communicator as Communicator
    from hpcgnn.comm.communicator import Exchange as Exchange
    from hpcgnn.comm.communicator import Message as Message
    from hpcgnn.comm.communicator import SoloCommunicator as SoloCommunicator
    from hpcgnn.comm.ledger import Ledger as Ledger

_HOMES = {
    "Communicator": "hpcgnn.comm.communicator",
    "Exchange": "hpcgnn.comm.communicator",
    "Message": "hpcgnn.comm.communicator",
    "Ledger": "hpcgnn.comm.ledger",
    "SoloCommunicator": "hpcgnn.comm.communicator",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
