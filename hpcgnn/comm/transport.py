"""The common part of transports of several ranks: tags, the ledger, the tape, waits that the watchdog sees.

A transport gives messages to a library and gets requests back. `comm/mpi.py` and `comm/torch_transport.py` have the
calls of the library and the waits. Counts and signs of life are here, once.
"""

import time
import zlib
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator, Exchange, Message
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger

# The largest tag that every MPI library supports.
_MOST_TAG = 0x7FFF
#: (receives, sends) of a library.
Requests = tuple[list[Any], list[Any]]
#: Types whose numbers are summed and compared.
REDUCED = (torch.float32, torch.float64, torch.int32, torch.int64)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as uint8 (bytes,): bfloat16 and friends have no type in some libraries, and need none.

    Raises ValueError if it is not contiguous.
    """
    if not tensor.is_contiguous():
        raise ValueError(
            f"expected a contiguous tensor to send or receive, got strides {tensor.stride()} for {tuple(tensor.shape)}"
        )
    flat = tensor.detach().view(-1)
    return flat if tensor.dtype == torch.uint8 else flat.view(torch.uint8)


def traffic(outgoing: list[Message], incoming: list[Message]) -> tuple[bool, int, int, int]:
    """(whether there are any, messages that are sent, their bytes, and the bytes received)."""
    sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
    return bool(outgoing or incoming), len(outgoing), sent, received


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's numbers (n,), to be reduced. Raises ValueError for types that are not, or if not contiguous."""
    if not tensor.is_contiguous() or tensor.dtype not in REDUCED:
        raise ValueError(
            f"expected a contiguous tensor of {sorted(map(str, REDUCED))}, got {tensor.dtype} with strides "
            f"{tensor.stride()}"
        )
    return tensor.detach().view(-1)


class MessageTransport(Communicator):
    """A communicator over a library, which returns a request for each message.

    Attributes:
        rank, size: this rank, and the number of ranks.
        heartbeat: receives the stages of long work; None for one that nobody looks at.
    """

    def __init__(self, rank: int, size: int, heartbeat: Heartbeat | None = None) -> None:
        self.rank, self.size = rank, size
        self.ledger, self.heartbeat = Ledger(), heartbeat or Heartbeat()

    # --- the library's part -------------------------------------------------------------------------------------------

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> Requests:
        """Give messages to the library and return (receives, sends)."""
        raise NotImplementedError

    def advance(self, *lists: list[Any]) -> None:
        """Let the requests of these lists advance while this rank computes."""

    def release(self, *lists: list[Any]) -> None:
        """Take requests back that were to advance: this thread waits for them now."""

    def _wait(self, requests: list[Any]) -> None:
        """Wait for these requests."""
        raise NotImplementedError

    def _reduce_(self, numbers: torch.Tensor, kind: str, op: str) -> None:
        """Combine numbers (n,) in place, by `_collective`."""
        raise NotImplementedError

    def _gather(self, data: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        """The bytes of all ranks, by rank. data: uint8 (n,); sizes: the number of each rank."""
        raise NotImplementedError

    def _barrier(self) -> Any:
        """The request of a barrier."""
        raise NotImplementedError

    # --- the common part ----------------------------------------------------------------------------------------------

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        return self._counted(self._begin(outgoing, incoming, self._tag(kind)), kind, *traffic(outgoing, incoming))

    def _counted(self, requests: Requests, kind: str, used: bool, *counts: int) -> "Requested":
        """Count messages that have begun. used, counts: their `traffic`."""
        if used:
            self.ledger.add(kind, *counts)
        return Requested(self, *requests, kind if used else "")

    def _tag(self, kind: str) -> int:
        """A message of another kind is not taken for one of this."""
        return zlib.crc32(kind.encode()) & _MOST_TAG

    def wait(self, kind: str, *lists: list[Any]) -> None:
        """Complete the requests of these lists, and count the seconds. kind: "" where all ranks had to call, and this
        one has no message in it.
        """
        start = time.perf_counter()
        self.release(*lists)
        self.complete(kind or "control", *lists)
        end = time.perf_counter()
        if not kind:
            return
        self.ledger.add(kind, seconds_waiting=end - start)
        if self.tape is not None:
            self.tape.add("wait", "wait", start, end, {"kind": kind})

    def complete(self, kind: str, *lists: list[Any]) -> None:
        """Wait for the requests of these lists, while other ranks see it."""
        self.heartbeat.arrive(self.heartbeat.at if kind == "control" else kind)
        for requests in lists:
            self._wait(requests)
        self.heartbeat.leave()

    def _collective(self, requests: list[Any], kind: str, size: int) -> None:
        """Wait for the requests of one collective call with `size` bytes, and count it."""
        start = time.perf_counter()
        self.complete(kind, requests)
        end = time.perf_counter()
        self.ledger.add(kind, messages=1, bytes_sent=size, bytes_received=size, seconds_waiting=end - start)
        if self.tape is not None:
            self.tape.add("all ranks", "reduction", start, end, {"kind": kind, "bytes": size})

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        if self.size > 1 and tensor.numel():
            self._reduce_(numbers_of(tensor), kind, op)
        return tensor

    def allgather_object(self, value: Any) -> list[Any]:
        return [self.of_bytes(part.numpy().tobytes()) for part in self._gather(*self._bytes_and_sizes(value))]

    def gather_object(self, value: Any, root: int = 0) -> list[Any] | None:
        data, sizes = self._bytes_and_sizes(value)
        if self.rank != root:
            self.exchange([(root, data)], [], "control").finish()
            return None
        parts = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        parts[root] = data
        self.exchange([], [(rank, part) for rank, part in enumerate(parts) if rank != root], "control").finish()
        return [self.of_bytes(part.numpy().tobytes()) for part in parts]

    def _bytes_and_sizes(self, value: Any) -> tuple[torch.Tensor, list[int]]:
        """(the bytes of this rank's object, how many each rank has)."""
        data = torch.frombuffer(bytearray(self.to_bytes(value)), dtype=torch.uint8)
        numbers = self._gather(torch.tensor([data.numel()]).view(torch.uint8), [8] * self.size)
        return data, torch.cat(numbers).view(torch.int64).tolist()

    def barrier(self) -> None:
        self._collective([self._barrier()], "control", 0)

    def close(self) -> None:
        """Wait for all ranks. Collective."""
        self.heartbeat.at = "the end"
        self.barrier()


class Requested(Exchange):
    """An exchange of requests. If a library needs a helper thread, the thread knows the requests by their lists, and
    may remove complete ones.
    """

    def __init__(self, transport: MessageTransport, receives: list[Any], sends: list[Any], kind: str) -> None:
        self._transport, self._kind = transport, kind
        # None: there are none, or they have been waited for.
        self._receives, self._sends = receives or None, sends or None

    def progress(self) -> None:
        self._transport.advance(*filter(None, (self._receives, self._sends)))

    def finish_receiving(self) -> None:
        if self._receives is not None:
            self._transport.wait(self._kind, self._receives)
            self._receives = None

    def finish_sending(self) -> None:
        if self._sends is not None:
            self._transport.wait(self._kind, self._sends)
            self._sends = None

    def finish(self) -> None:
        if self._receives is None or self._sends is None:
            super().finish()
            return
        self._transport.wait(self._kind, self._receives, self._sends)
        self._receives = self._sends = None
