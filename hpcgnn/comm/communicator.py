"""The small set of operations by which ranks communicate, and the guarantees of each.

Everything above this room receives a communicator as an argument and imports no MPI. A transport is a subclass with
`exchange`, `alltoall`, `allreduce_`, `broadcast_`, `allgather_object`, `gather_object` and `close`; the other methods
build on these.
Transports: `SoloCommunicator` for one process, `comm/mpi.py` over mpi4py, `comm/torch_transport.py` over
torch.distributed. tests/mpi/comm/test_communicator.py holds the contract of all transports.
"""

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import DTypeLike

from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger
from hpcgnn.errors import ConfigError, HpcgnnError, RemoteError, memory_shortage
from hpcgnn.word_list import ranges

if TYPE_CHECKING:
    from hpcgnn.comm.span_recorder import SpanRecorder


#: A rank, and the tensor that goes there or comes from there.
Message = tuple[int, torch.Tensor]


class Exchange:
    """Messages that are under way: sent tensors must not change, nor received ones be read, until they are through.

    None of the verbs is collective. Of this class itself nothing is under way.
    """

    def progress(self) -> None:
        """Let the messages advance in the background while this rank computes."""

    def finish_receiving(self) -> None:
        """Wait until the incoming messages are here."""

    def finish_sending(self) -> None:
        """Wait until the tensors that go may be used again."""

    def finish(self) -> None:
        """Wait for both."""
        self.finish_receiving()
        self.finish_sending()


class NodeMemory(Protocol):
    """Memory that the ranks of a node read and write together. ranks: their numbers, ascending; place: this rank's
    among them. Whatever it does is collective over the node.
    """

    ranks: list[int]
    place: int

    def allocate(self, nbytes: int) -> Any:
        """Return a buffer shared by all these ranks, which lives as long as any of them refers to it. Collective.

        Args:
            nbytes: size, the same on all.

        Raises:
            ConfigError: on all of them, if they cannot see each other's memory.
        """

    def gather(self, value: Any) -> list[Any]:
        """The small values of all these ranks, by place."""

    def meet(self, number: int, kind: str, held: Sequence[bool]) -> list[bool]:
        """Wait until all these ranks are here. Afterwards they may read each other's earlier writes.

        Args:
            number: the same on all, which is checked.
            kind: the ledger's name for the seconds.
            held: whether this rank holds each of some things, as many on all.

        Returns:
            Whether any of them holds it.
        """


class Communicator:
    """The operations between ranks. All are collective unless their docstring excludes it: all ranks call them, in the
    same order.

    Attributes:
        ledger: counts this rank's traffic.
        heartbeat: receives the stages of long work.
        tape: the tape while a trace is recorded, else None.
        first_of_node: whether this rank is the first of its node, and does the node's common work.
        pairwise: whether `exchange` concerns only ranks with messages for each other. Otherwise all ranks call it, in
            the same order.
    """

    rank: int
    size: int
    ledger: Ledger
    heartbeat: Heartbeat
    tape: "SpanRecorder | None" = None
    first_of_node: bool = True
    pairwise: bool = True

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        """Begin to send and to receive contiguous tensors: the one operation for messages between two ranks. Not
        collective.

        Several messages to one rank arrive in their order, and both ends give the same size. Ranks without messages may
        skip the call. For each pair of ranks and kind, both ends call in the same order, since messages of a kind
        arrive in the order of sending.

        Args:
            outgoing: [(rank, tensor)] to send.
            incoming: [(rank, tensor)] to fill.
            kind: the ledger's name for the traffic, the same on both ends.
        """
        raise NotImplementedError

    def prepare(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Callable[..., Exchange]:
        """Return a function that begins the same messages, from and into the same memory, once the last are through.

        Arguments as in `exchange`; each call takes the place of such a call in the order. It may be given another
        `kind`, the same on both ends, which the ledger books. The other end need not prepare its side for the first
        kind. Not collective.
        """
        return functools.partial(self.exchange, outgoing, incoming, kind=kind)

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        """Exchange one number with each rank.

        Args:
            numbers: int64 (P,), by receiver.
            kind: the ledger's name for the traffic.

        Returns:
            int64 (P,), by sender.
        """
        raise NotImplementedError

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        """Combine a contiguous tensor over all ranks in place; op is 'sum', 'max' or 'min'. Returns the tensor."""
        raise NotImplementedError

    def allgather_object(self, value: Any) -> list[Any]:
        """The small Python values of all ranks, by rank; each rank reads P of them. See `gather_object`."""
        raise NotImplementedError

    def gather_object(self, value: Any, root: int = 0) -> list[Any] | None:
        """The Python values of all ranks, by rank, on `root`, which alone reads them; None on the others."""
        raise NotImplementedError

    def to_bytes(self, value: Any) -> bytes:
        """The bytes of an object on the way: pickle, where nobody but the launcher can start a rank. Not collective."""
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def of_bytes(self, data: bytes) -> Any:
        """The object of `to_bytes`. Not collective."""
        return pickle.loads(data)

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The small Python value that `root` has, which the others read."""
        data = bytearray(self.to_bytes(value) if self.rank == root else b"")
        length = int(self.broadcast_(torch.tensor([len(data)]), root, "control"))
        message = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(length, dtype=torch.uint8)
        self.broadcast_(message, root, "control")
        return value if self.rank == root else self.of_bytes(message.numpy().tobytes())

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        """Overwrite a contiguous tensor with the root's. Returns the tensor."""
        raise NotImplementedError

    def broadcast_array(self, values: np.ndarray | None, length: int, dtype: DTypeLike) -> np.ndarray:
        """Return rank 0's 1-d array on all ranks, sent as messages of numbers (`control`).

        Args:
            values: the array on rank 0.
            length: its length.
            dtype: its type.
        """
        if self.rank != 0 or values is None:
            values = np.empty(length, dtype)
        return self.broadcast_(torch.from_numpy(np.ascontiguousarray(values, dtype)), 0, "control").numpy()

    def check_pairwise(self, what: str) -> None:
        """Raise ConfigError, on all ranks, if `exchange` is not pairwise.

        Args:
            what: the beginning of a sentence that continues with `by messages …`.
        """
        if not self.pairwise:
            raise ConfigError.on_all(
                f"{what} by messages between two ranks alone, which this transport does not have; expected --comm mpi, "
                "or --comm torch"
            )

    def node_memory(self) -> NodeMemory | None:
        """The memory of the ranks of this node; None where the transport has none."""
        return None

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.allgather_object(None)

    def rest(self) -> None:
        """`barrier`, for waits of minutes: without a core where the transport can."""
        self.barrier()

    def first(self, ranks: int) -> "Communicator | None":
        """A communicator of the first ranks alone, which they close; None on the others. Raises ConfigError, on all
        ranks, where the transport has none.
        """
        raise ConfigError.on_all("a part of the ranks cannot work alone by this transport; expected --comm mpi")

    @contextlib.contextmanager
    def together(self, what: str, on_one: bool = False) -> Iterator[None]:
        """Run the body on every rank; if it fails on any, raise on all, so that no rank waits for one that left.

        The body itself must not communicate. If several ranks find a mistake of the user, the lowest of them reports it
        once. The error then carries `everywhere = True`, which lets the job end in order (without Abort).

        Args:
            what: the operation, for the message.
            on_one: one rank does the work for all. Its error is everyone's, and does not name a rank.
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
        messages = self.allgather_object(None if failure is None else (type(failure).__name__, str(failure)))
        failed = [rank for rank, message in enumerate(messages) if message is not None]
        name, text = messages[failed[0]]
        kind = next((each for each in HpcgnnError.__subclasses__() if each.__name__ == name), HpcgnnError)
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

    def close(self) -> None:
        """Release the transport's resources."""

    def total(self, tensor: torch.Tensor, kind: str = "metrics") -> torch.Tensor:
        """The sum over ranks of a float64 or int64 tensor, as a new tensor."""
        return self.allreduce_(tensor.clone(), kind)


class SoloCommunicator(Communicator):
    """One rank without MPI: for tests, for tools, and for the probe before the memory baseline. Nothing is ever sent,
    and the ledger stays empty.
    """

    def __init__(self) -> None:
        self.rank, self.size, self.ledger, self.heartbeat = 0, 1, Ledger(), Heartbeat()

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        assert not outgoing and not incoming, "one rank has nobody to exchange with"
        return Exchange()

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        return numbers.clone()

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        return [value]

    def gather_object(self, value: Any, root: int = 0) -> list[Any]:
        return [value]

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        return value

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        return tensor
