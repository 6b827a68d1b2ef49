"""A second transport over the ranks of a started job, to compare two transports."""

import socket
from contextlib import closing

import torch.distributed as dist

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launch.addresses import LOOPBACK, family_of, own_addresses
from hpcgnn.comm.session import Session
from hpcgnn.comm.transports.gloo import FOREVER, check_gloo, make_communicator
from hpcgnn.comm.transports.oneccl_library import load
from hpcgnn.errors import ConfigError

# Nothing is sent there: it is asked which way a message would go.
_ANY_PORT = 9


def missing_on(session: Session, transport: str) -> str | None:
    """Why some rank does not have this transport (torch or oneccl), or None if all have it. Collective."""
    comm = session.comm
    try:
        mine = None
        if transport == "torch":
            check_gloo()
        elif session.means.comm != "mpi":
            mine = "--comm oneccl needs MPI, which was not started: --comm mpi shows it"
        else:
            load()
    except ConfigError as error:
        mine = str(error)
    return next((reason for reason in comm.allgather_object(mine) if reason is not None), None)


def communicator_beside(session: Session, transport: str) -> Communicator:
    """A communicator of this transport (torch or oneccl) over the ranks of a session. Collective; to be closed by all
    ranks.
    """
    if transport == "oneccl":
        return session.oneccl_beside()
    comm = session.comm
    one_node = min(comm.allgather_object(session.ranks_on_node)) == comm.size
    first = LOOPBACK if one_node else comm.broadcast_object(own_addresses()[0])
    store = None
    if comm.rank == 0:
        store = dist.TCPStore(first, 0, is_master=True, wait_for_workers=False, timeout=FOREVER)
    port = comm.broadcast_object(None if store is None else store.port)
    if store is None:
        store = dist.TCPStore(first, port, is_master=False, timeout=FOREVER)
    address = first if comm.rank == 0 else _way_to(first)
    return make_communicator(store, comm.rank, comm.size, address, session.watchdog)


def _way_to(address: str) -> str:
    """This node's own address on the way there."""
    with closing(socket.socket(family_of(address), socket.SOCK_DGRAM)) as asked:
        asked.connect((address, _ANY_PORT))
        return str(asked.getsockname()[0])
