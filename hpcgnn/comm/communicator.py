"""The small set of verbs that the rest of the program speaks to other ranks with, and what each of them promises.

Everything above this room receives a communicator as an argument and imports no MPI. A transport is a subclass that has
`exchange`, `alltoall`, `allreduce_`, `broadcast_`, `allgather_object`, `gather_object` and `close`; all else follows
from these.
Transports: `comm/transports/solo.py` for one process, `comm/transports/mpi.py` over mpi4py,
`comm/transports/torch_verbs.py` over torch.distributed.
tests/mpi/test_communicator.py holds what every transport must do.
"""

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from hpcgnn.comm.health.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger
from hpcgnn.errors import ConfigError, HpcgnnError, RemoteError, memory_shortage
from hpcgnn.listing import ranges

if TYPE_CHECKING:
    from hpcgnn.comm.tape import Tape


#: A rank, and the tensor that goes there or comes from there.
Message = tuple[int, torch.Tensor]


class Exchange:
    """Messages that are under way: sent tensors must not change, nor received ones be read, until they are through.

    None of the verbs is collective.
    """

    def progress(self) -> None:
        """Let the messages advance in the background while this rank computes."""

    def arrived(self) -> bool:
        """Whether all are through; looks and does not wait."""
        raise NotImplementedError

    def finish_receiving(self) -> None:
        """Wait until what comes is here."""
        raise NotImplementedError

    def finish_sending(self) -> None:
        """Wait until the tensors that go may be used again."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for both."""
        self.finish_receiving()
        self.finish_sending()


class Finished(Exchange):
    """Nothing is under way."""

    def arrived(self) -> bool:
        return True

    def finish_receiving(self) -> None:
        pass

    def finish_sending(self) -> None:
        pass


class PersistentExchange:
    """Messages that are sent again and again, from and into the same memory: peers, order, sizes never change.

    `begin` is `exchange` of them, with the same promises, once those of the time before are through. A transport may
    have them prepared; this one hands them over anew each time.
    """

    def __init__(self, comm: "Communicator", outgoing: list[Message], incoming: list[Message], kind: str) -> None:
        self._comm, self._outgoing, self._incoming, self._kind = comm, outgoing, incoming, kind

    def begin(self) -> Exchange:
        """Begin to send and to receive them once more. Not collective, as `exchange` is not."""
        return self._comm.exchange(self._outgoing, self._incoming, self._kind)


class NodeMemory(Protocol):
    """Memory that the ranks of a node read and write together. ranks: their numbers, ascending; place: this rank's
    among them. Whatever it does is collective over the node.
    """

    ranks: list[int]
    place: int

    def allocate(self, nbytes: int) -> Any:
        """A buffer of so many bytes, the same ones for all these ranks, as long as any of them refers to it. nbytes:
        the same for all. Raises ConfigError on all of them where they cannot see each other's memory.
        """

    def gather(self, value: Any) -> list[Any]:
        """The small values of all these ranks, by place."""

    def meet(self, number: int, kind: str) -> None:
        """Wait until all these ranks are here: what each has written before, the others may read then. number: the same
        for all, which is checked. kind: the ledger's name for the seconds.
        """


class Communicator:
    """The verbs. Unless said otherwise every one is collective: all ranks call it, in the same order.

    ledger: of this rank's traffic; heartbeat: to be told of long work; tape: while a trace is recorded, else None.
    first_of_node: whether this rank is the first of its node, which does what is the same for all of them.
    pairwise: whether `exchange` concerns only ranks that have messages for each other; otherwise all ranks call it, in
    the same order.
    """

    rank: int
    size: int
    ledger: Ledger
    heartbeat: Heartbeat
    tape: "Tape | None" = None
    first_of_node: bool = True
    pairwise: bool = True

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        """Begin to send and to receive contiguous tensors: the one verb for messages between two ranks.

        outgoing, incoming: [(rank, tensor)]; several for one rank arrive in this order, and what comes has exactly the
        size that is sent. kind: the ledger's name for the traffic, the same on both ends. Ranks that have nothing to
        send or to receive may leave the call out; those that have call in the same order for each pair of ranks and
        kind, since messages of a kind arrive in the order in which they were sent. Not collective.
        """
        raise NotImplementedError

    def prepare(self, outgoing: list[Message], incoming: list[Message], kind: str) -> PersistentExchange:
        """The same messages, to be begun many times. Arguments as of `exchange`, in whose order each `begin` stands.

        Costs nothing before the second time, so that what is made anew for every epoch may be prepared, too. Not
        collective, and the other end need not prepare its side.
        """
        return PersistentExchange(self, outgoing, incoming, kind)

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        """One number for each rank: int64 (P,), by the rank that it goes to. Returns those that came, by the rank that
        they are from.
        """
        raise NotImplementedError

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        """Combine a contiguous tensor over all ranks in place; op is 'sum', 'max' or 'min'. Returns the tensor."""
        raise NotImplementedError

    def prepare_sums(self) -> bool:
        """Whether sums can be under way while ranks compute and send (`begin_sum_`); makes ready for them. Collective.

        No here: what is summed is summed by `allreduce_`, when all is computed.
        """
        return False

    def begin_sum_(self, tensor: torch.Tensor, kind: str) -> Exchange:
        """Begin to sum a contiguous tensor over all ranks in place; nobody reads or writes it until that is through.

        After `prepare_sums`. All ranks begin the same sums in the same order. They need not agree about what else they
        call before, between and after: a rank may be messages and other collective calls ahead. Does not wait.
        """
        raise NotImplementedError

    def allgather_object(self, value: Any) -> list[Any]:
        """The small Python values of all ranks, by rank; each rank reads P of them. See `gather_object`."""
        raise NotImplementedError

    def gather_object(self, value: Any, root: int = 0) -> list[Any] | None:
        """The Python values of all ranks, by rank, on `root`, which alone reads them; None on the others."""
        raise NotImplementedError

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The small Python value that `root` has, which the others read."""
        data = bytearray(pickle.dumps(value, pickle.HIGHEST_PROTOCOL) if self.rank == root else b"")
        length = int(self.broadcast_(torch.tensor([len(data)]), root, "control"))
        message = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(length, dtype=torch.uint8)
        self.broadcast_(message, root, "control")
        return value if self.rank == root else pickle.loads(message.numpy().data)

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        """Overwrite a contiguous tensor with the root's. Returns the tensor."""
        raise NotImplementedError

    def broadcast_array(self, values: np.ndarray | None, length: int, dtype: np.typing.DTypeLike) -> np.ndarray:
        """The 1-d array of so many numbers of this type that rank 0 has, as messages of numbers (`control`)."""
        if self.rank != 0 or values is None:
            values = np.empty(length, dtype)
        return self.broadcast_(torch.from_numpy(np.ascontiguousarray(values, dtype)), 0, "control").numpy()

    def check_pairwise(self, what: str) -> None:
        """Raise ConfigError, on all ranks, where `exchange` is not pairwise. what: the beginning of a sentence
        that goes on with `by messages …`.
        """
        if not self.pairwise:
            raise ConfigError.on_all(
                f"{what} by messages between two ranks alone, which this transport does not have; expected --comm mpi, "
                "or --comm torch with --torch-backend gloo"
            )

    def node_memory(self) -> NodeMemory | None:
        """The memory of the ranks of this node; None where the transport has none."""
        return None

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.allgather_object(None)

    @contextlib.contextmanager
    def together(self, what: str, on_one: bool = False) -> Iterator[None]:
        """Run the body on every rank; if it fails on any, raise on all, so that nobody waits for a rank that left.

        The body must not itself communicate. on_one: one rank does the work for all; its error is then that of all,
        and does not say where it was found. A mistake of the user found by several ranks is reported once, by the
        lowest of them; the error then carries `everywhere = True`, which lets the job end in order (without Abort).
        """
        failure: HpcgnnError | None = None
        try:
            yield
        except HpcgnnError as error:
            failure = error
        except (MemoryError, OSError, RuntimeError) as error:
            failure = memory_shortage(error)
            if failure is None:
                raise
        # Anything else is a fault of the program: it leaves here at once and aborts the job with its traceback.
        self.heartbeat.at = what
        if not self.allreduce_(torch.tensor([int(failure is not None)]), "control", "max").item():
            return  # texts travel only when there is one
        messages = self.allgather_object(None if failure is None else (type(failure), str(failure)))
        failed = [rank for rank, message in enumerate(messages) if message is not None]
        kind, text = messages[failed[0]]
        where = (
            ""
            if on_one or len(failed) == self.size
            else f" [rank {ranges(failed, most=4, joined=False)} of {self.size}, {what}]"
        )
        told = kind(text + where) if on_one or failure is not None else RemoteError(text + where)
        told.everywhere = True
        if isinstance(told, RemoteError):
            told.of = kind
        raise told from failure

    def show_heartbeats(self, folder: str | Path) -> None:
        """Let ranks of several nodes see each other's signs of life from now on: in `heartbeats` of this folder."""

    def close(self) -> None:
        """Give up what the transport holds."""

    def total(self, tensor: torch.Tensor, kind: str = "metrics") -> torch.Tensor:
        """The sum over ranks of a float64 or int64 tensor, as a new tensor."""
        return self.allreduce_(tensor.clone(), kind)
