"""One rank without MPI: for tests, for tools, and for the toy training step before the memory baseline."""

from hpcgnn.comm.communicator import Communicator, Finished
from hpcgnn.comm.ledger import Ledger
from hpcgnn.comm.pulse import Pulse


class SoloCommunicator(Communicator):
    """One rank without MPI. Nothing is ever sent, and the ledger stays empty."""

    def __init__(self):
        self.rank, self.size, self.ledger, self.pulse = 0, 1, Ledger(), Pulse()

    def exchange(self, outgoing, incoming, kind):
        assert not outgoing and not incoming, "one rank has nobody to exchange with"
        return Finished()

    def allreduce_(self, tensor, kind, op="sum"):
        return tensor

    def allgather_object(self, value):
        return [value]

    def broadcast_(self, tensor, root, kind):
        return tensor
