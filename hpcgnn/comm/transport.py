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

    def advance(self, requests: list[Any]) -> None:
        """Let these requests advance while this rank computes."""

    def release(self, requests: list[Any]) -> None:
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
        return self._counted(self._begin(outgoing, incoming, self._tag(kind)), outgoing, incoming, kind)

    def _counted(self, requests: Requests, outgoing: list[Message], incoming: list[Message], kind: str) -> "Requested":
        """Count messages that have begun."""
        used = kind if outgoing or incoming else ""
        if used:
            sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
            self.ledger.add(used, len(outgoing), sent, received)
        return Requested(self, *requests, used)

    def _tag(self, kind: str) -> int:
        """A message of another kind is not taken for one of this."""
        return zlib.crc32(kind.encode()) & _MOST_TAG

    def wait(self, requests: list[Any], kind: str) -> None:
        """Complete these requests, and count the seconds. kind: "" where all ranks had to call, and this one has no
        message in it.
        """
        start = time.perf_counter()
        self.release(requests)
        self.complete(requests, kind or "control")
        end = time.perf_counter()
        if not kind:
            return
        self.ledger.add(kind, seconds_waiting=end - start)
        if self.tape is not None:
            self.tape.add("wait", "wait", start, end, {"kind": kind})

    def complete(self, requests: list[Any], kind: str) -> None:
        """Wait for these requests, while other ranks see it."""
        self.heartbeat.arrive(self.heartbeat.at if kind == "control" else kind)
        self._wait(requests)
        self.heartbeat.leave()

    def _collective(self, requests: list[Any], kind: str, size: int) -> None:
        """Wait for the requests of one collective call with `size` bytes, and count it."""
        start = time.perf_counter()
        self.complete(requests, kind)
        end = time.perf_counter()
        self.ledger.add(kind, messages=1, bytes_sent=size, bytes_received=size, seconds_waiting=end - start)
        if self.tape is not None:
            self.tape.add("all ranks", "reduction", start, end, {"kind": kind, "bytes": size})

    def allreduce_(self, tensor: torch.Tensor, kind: str, op: str = "sum") -> torch.Tensor:
        if tensor.numel():
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
        for requests in (self._receives, self._sends):
            if requests:
                self._transport.advance(requests)

    def finish_receiving(self) -> None:
        if self._receives is not None:
            self._transport.wait(self._receives, self._kind)
            self._receives = None

    def finish_sending(self) -> None:
        if self._sends is not None:
            self._transport.wait(self._sends, self._kind)
            self._sends = None
