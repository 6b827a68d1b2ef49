"""The small set of verbs that the rest of the program speaks to other ranks with, and their one-rank version.

Everything above this room receives a communicator as an argument and imports no MPI. `SoloCommunicator` gives the same
verbs to one process without MPI: for tests, for tools, and for the toy training step before the memory baseline.
`MpiCommunicator` (in `mpi.py`) gives them over mpi4py.
"""

import contextlib

import torch

from hpcgnn.comm.ledger import Ledger
from hpcgnn.comm.pulse import Pulse
from hpcgnn.errors import HpcgnnError, RemoteError, memory_shortage


class Communicator:
    """The verbs. Unless said otherwise every one is collective: all ranks call it, in the same order.

    Attributes: rank, size: int; ledger: Ledger of this rank's traffic; pulse: Pulse, to be told of long work.
    """

    rank: int
    size: int
    ledger: Ledger
    pulse: Pulse

    def isend(self, tensor: torch.Tensor, dest: int, tag: int, kind: str):
        """Begin sending a contiguous tensor; it must not change until the request is finished. Not collective."""
        raise NotImplementedError

    def irecv(self, tensor: torch.Tensor, source: int, tag: int, kind: str):
        """Begin receiving into a contiguous tensor of exactly the size that is sent. Not collective."""
        raise NotImplementedError

    def progress(self, requests):
        """Let the requests advance in the background while this rank computes. Not collective."""

    def arrived(self, requests) -> bool:
        """Whether the requests are complete; looks and does not wait. Not collective."""
        raise NotImplementedError

    def wait(self, requests, kind: str):
        """Finish the requests. Not collective."""
        raise NotImplementedError

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum"):
        """Combine a contiguous tensor over all ranks in place; op is 'sum', 'max' or 'min'. Returns the tensor."""
        raise NotImplementedError

    def allgather_object(self, value) -> list:
        """The small Python values of all ranks, by rank."""
        raise NotImplementedError

    def broadcast_object(self, value, root: int = 0):
        """The small Python value that `root` has."""
        raise NotImplementedError

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str):
        """Overwrite a contiguous tensor with the root's. Returns the tensor."""
        raise NotImplementedError

    def barrier(self):
        """Return when all ranks have come here."""
        self.allgather_object(None)

    @contextlib.contextmanager
    def together(self, what: str):
        """Run the body on every rank; if it fails on any, raise on all, so that nobody waits for a rank that left.

        The body must not itself communicate. A mistake of the user found by several ranks is reported once, by the
        lowest of them; the error then carries `everywhere = True`, which lets the job end in order (without Abort).
        """
        failure = None
        try:
            yield
        except HpcgnnError as error:
            failure = error
        except (MemoryError, OSError, RuntimeError) as error:
            failure = memory_shortage(error)
            if failure is None:
                raise
        # Anything else is a fault of the program: it leaves here at once and aborts the job with its traceback.
        self.pulse.at = what
        messages = self.allgather_object(None if failure is None else (type(failure), str(failure)))
        failed = [rank for rank, message in enumerate(messages) if message is not None]
        if not failed:
            return
        kind, text = messages[failed[0]]
        where = "" if len(failed) == self.size else f" [rank {_ranges(failed)} of {self.size}, {what}]"
        error = kind(text + where) if failure is not None else RemoteError(text + where)
        error.everywhere = True
        raise error from failure

    def show_heartbeats(self, folder):
        """Where the ranks of several nodes can see each other's signs of life from now on: a file in this folder."""

    def total(self, tensor: torch.Tensor, kind: str = "metrics") -> torch.Tensor:
        """The sum over ranks of a float64 or int64 tensor, as a new tensor."""
        return self.allreduce_(tensor.clone(), kind)


def _ranges(ranks):
    """'0, 2, 3' shortened to the first few."""
    return ", ".join(map(str, ranks[:4])) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


class SoloCommunicator(Communicator):
    """One rank without MPI. Nothing is ever sent, and the ledger stays empty."""

    def __init__(self):
        self.rank, self.size, self.ledger, self.pulse = 0, 1, Ledger(), Pulse()

    def arrived(self, requests):
        return not requests

    def wait(self, requests, kind):
        assert not requests, "one rank has nobody to wait for"

    def allreduce_(self, tensor, kind, op="sum"):
        return tensor

    def allgather_object(self, value):
        return [value]

    def broadcast_object(self, value, root=0):
        return value

    def broadcast_(self, tensor, root, kind):
        return tensor
