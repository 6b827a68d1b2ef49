"""The common part of transports of several ranks: tags, the ledger, the tape, waits that the watchdog sees.

A transport gives messages to a library and gets requests back. `comm/transports/mpi.py` and
`comm/transports/torch_verbs.py` have the calls of the library and the waits. Counts and signs of life are here, once.
"""

import contextlib
import shutil
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from hpcgnn.comm.communicator import Communicator, Exchange, Message, PersistentExchange
from hpcgnn.comm.health.heartbeat import Heartbeat
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.ledger import Ledger

# The largest tag that every MPI library supports.
_MOST_TAG = 0x7FFF
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


class PersistentRequests(Protocol):
    """Requests that a library keeps, and starts again and again."""

    def start(self) -> tuple[list[Any], list[Any]]:
        """Start all requests and return (receives, sends), lists that keep them alive. None of them may be under
        way.
        """


class Traffic(NamedTuple):
    """The traffic of an exchange.

    Attributes:
        kind: the ledger's name.
        messages: number of messages sent.
        bytes: bytes sent, and bytes received.
        any: whether there is a message at all.
    """

    kind: str
    messages: int
    bytes_sent: int
    bytes_received: int
    any: bool

    @classmethod
    def of(cls, outgoing: list[Message], incoming: list[Message], kind: str) -> "Traffic":
        """Return the Traffic of these messages."""
        sent, received = (sum(tensor.nbytes for _, tensor in messages) for messages in (outgoing, incoming))
        return cls(kind, len(outgoing), sent, received, bool(outgoing or incoming))


class Transport(Communicator):
    """A communicator over a library, which returns a request for each message.

    Attributes:
        rank, size: this rank, and the number of ranks.
        watchdog: the watchdog of this rank's heartbeat, or None.
    """

    def __init__(self, rank: int, size: int, watchdog: Watchdog | None = None) -> None:
        self.rank, self.size = rank, size
        self.ledger, self._watchdog = Ledger(), watchdog
        self._heartbeats: Path | None = None
        self.heartbeat = Heartbeat() if watchdog is None else watchdog.heartbeat
        self._kinds: dict[int, str] = {}  # by tag

    # --- the library's part -------------------------------------------------------------------------------------------

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> tuple[list[Any], list[Any]]:
        """Give messages to the library and return (receives, sends)."""
        raise NotImplementedError

    def _persistent(self, outgoing: list[Message], incoming: list[Message], tag: int) -> PersistentRequests | None:
        """Requests of these messages that can be started again and again; None where the library has none."""
        return None

    def advance(self, requests: list[Any]) -> None:
        """Let these requests advance while this rank computes."""

    def arrived(self, requests: list[Any]) -> bool:
        """Whether these requests are complete; looks and does not wait."""
        raise NotImplementedError

    def release(self, requests: list[Any]) -> None:
        """Take requests back that were to advance: this thread waits for them now."""

    def _wait(self, requests: list[Any]) -> None:
        """Wait for these requests."""
        raise NotImplementedError

    def _reduce_(self, numbers: torch.Tensor, kind: str, op: str) -> None:
        """Combine numbers (n,) in place, by `_collective`."""
        raise NotImplementedError

    def _barrier(self) -> Any:
        """The request of a barrier."""
        raise NotImplementedError

    # --- the common part ----------------------------------------------------------------------------------------------

    def exchange(self, outgoing: list[Message], incoming: list[Message], kind: str) -> Exchange:
        requests = self._begin(outgoing, incoming, self._tag(kind))
        return self._under_way(*requests, Traffic.of(outgoing, incoming, kind))

    def prepare(self, outgoing: list[Message], incoming: list[Message], kind: str) -> PersistentExchange:
        return _Prepared(self, outgoing, incoming, kind)

    def _tag(self, kind: str) -> int:
        """A message of another kind is not taken for one of this."""
        tag = zlib.crc32(kind.encode()) & _MOST_TAG
        if self._kinds.setdefault(tag, kind) != kind:
            raise ValueError(
                f"messages of kind {kind!r} would have the tag of {self._kinds[tag]!r}; give them another name"
            )
        return tag

    def _under_way(self, receives: list[Any], sends: list[Any], traffic: Traffic) -> "Requested":
        """Count messages given to the library."""
        if traffic.any:
            self.ledger.add(*traffic[:-1])
        return Requested(self, receives, sends, traffic.kind if traffic.any else "")

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

    def barrier(self) -> None:
        self._collective([self._barrier()], "control", 0)

    def show_heartbeats(self, folder: str | Path) -> None:
        if self._watchdog is None or not self._watchdog.several_nodes:
            return
        path = Path(folder) / "heartbeats"
        if self.rank == 0:
            _remove(path)  # of a job that was ended
            with contextlib.suppress(OSError):
                path.mkdir()
                self._heartbeats = path
        self.barrier()
        self._watchdog.share(path)

    def close(self) -> None:
        """Wait for all ranks, and remove their shared memory. Collective."""
        self.heartbeat.at = "the end"
        self.barrier()
        if self._heartbeats is not None:
            _remove(self._heartbeats)


def _remove(heartbeats: Path) -> None:
    """Remove the files of the nodes, or the one file that earlier versions wrote."""
    with contextlib.suppress(OSError):
        heartbeats.unlink()
    shutil.rmtree(heartbeats, ignore_errors=True)


class Requested(Exchange):
    """An exchange of requests. If a library needs a helper thread, the thread knows the requests by their lists, and
    may remove complete ones.
    """

    def __init__(self, transport: Transport, receives: list[Any], sends: list[Any], kind: str) -> None:
        self._transport, self._kind = transport, kind
        # None: there are none, or they have been waited for.
        self._receives, self._sends = receives or None, sends or None

    @property
    def finished(self) -> bool:
        """Whether both have been waited for."""
        return self._receives is self._sends is None

    def progress(self) -> None:
        for requests in (self._receives, self._sends):
            if requests:
                self._transport.advance(requests)

    def arrived(self) -> bool:
        return all([self._transport.arrived(each) for each in (self._receives, self._sends) if each])

    def finish_receiving(self) -> None:
        if self._receives is not None:
            self._transport.wait(self._receives, self._kind)
            self._receives = None

    def finish_sending(self) -> None:
        if self._sends is not None:
            self._transport.wait(self._sends, self._kind)
            self._sends = None


class _Prepared(PersistentExchange):
    """Persistent requests, made in the second round: for messages sent only once, preparation would be wasted.

    They take their place in the order of all other messages, as MPI defines it. A started request matches like one sent
    at that moment (MPI 4.1, 3.9), with any request of the other end, prepared or not. So the rule of `exchange` is
    enough. Both ends begin in the same order for each pair of ranks and kind, however many transfers are under way.
    """

    def __init__(self, transport: Transport, outgoing: list[Message], incoming: list[Message], kind: str) -> None:
        super().__init__(transport, outgoing, incoming, kind)
        self._transport, self._tag = transport, transport._tag(kind)
        self._traffic = Traffic.of(outgoing, incoming, kind)
        self._times = 0
        self._requests: PersistentRequests | None = None
        self._last: Requested | None = None

    def begin(self) -> Exchange:
        assert self._last is None or self._last.finished, "the messages of the time before have been waited for"
        self._times += 1
        if self._times == 2 and self._traffic.any:
            self._requests = self._transport._persistent(self._outgoing, self._incoming, self._tag)
        if self._requests is None:
            requests = self._transport._begin(self._outgoing, self._incoming, self._tag)
        else:
            requests = self._requests.start()
        self._last = self._transport._under_way(*requests, self._traffic)
        return self._last
