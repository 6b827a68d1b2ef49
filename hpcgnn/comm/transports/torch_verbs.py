"""The communicator's operations over a process group of torch.distributed, for backends that send and receive (gloo,
mpi).

gloo has a thread of its own that moves messages while the rank computes, so no helper thread of ours is needed. A rank
that waits for it sleeps, so ranks may share cores. Two missing features of gloo's sends and receives shape this file.
They have no test for completion, and a wait with a limit breaks all connections when the limit passes. So a test starts
a thread that waits without a limit, and the watchdog ends a standstill.
"""

import re
import threading
from typing import Any, cast

import torch
import torch.distributed as dist

from hpcgnn import cores
from hpcgnn.comm import plain_data
from hpcgnn.comm.communicator import Message
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.transport import Transport, bytes_of
from hpcgnn.errors import LostConnection

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_BROKEN = re.compile("connect|broken pipe|reset by|closed|(read|write) error|timed out", re.IGNORECASE)
# Longer objects are not padded to the longest of all ranks, but sent by one rank after another.
_LONG_OBJECT = 1 << 16


class Request:
    """A piece of work of torch's. about: whom it is with, in words; kept: tensors that it needs until then."""

    def __init__(self, work: Any, about: str, *kept: torch.Tensor) -> None:
        self._work, self._about, self._kept = work, about, kept
        self.done = False
        self._failure: BaseException | None = None
        self.watcher: threading.Thread | None = None

    def complete(self) -> None:
        """Wait for it, in this thread."""
        try:
            self._work.wait()
        except RuntimeError as error:
            raise broken(error, self._about) from error.__cause__
        self.done = True

    def watch(self) -> None:
        """The same, in a thread of its own: the error is for the one who asks."""
        try:
            self.complete()
        except BaseException as error:
            self._failure = error
            self.done = True

    def wait(self) -> None:
        """Wait for it, whoever does so already: two threads must not complete the same one."""
        if self.watcher is not None:
            self.watcher.join()
            if self._failure is not None:
                raise self._failure
        elif not self.done:
            self.complete()


def _watch(requests: list[Request]) -> None:
    cores.use_all()
    for each in requests:
        each.watch()


def broken(error: RuntimeError, about: str) -> Exception:
    """Turn torch's error about a lost connection into a LostConnection of one line; return other errors unchanged."""
    words = str(error).split("] ", 1)[-1].split(". This is typically")[0]
    if _BROKEN.search(words) is None:
        return error
    return LostConnection(f"the connection {about} is broken: {' '.join(words.split())}")


class TorchCommunicator(Transport):
    """The operations over a process group.

    Attributes:
        group: torch's group.
        watchdog: the watchdog of this rank's heartbeat, or None.
    """

    def __init__(
        self,
        group: Any,
        rank: int,
        size: int,
        watchdog: Watchdog | None = None,
    ) -> None:
        super().__init__(rank, size, watchdog)
        self._group = group

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> tuple[list[Request], list[Request]]:
        coming = [(rank, bytes_of(tensor)) for rank, tensor in incoming]
        going = [(rank, bytes_of(tensor)) for rank, tensor in outgoing]
        # Both ends know of a message without bytes, so it is not passed to gloo.
        receives = [self._post(self._group.recv, "from", *each, tag) for each in coming if each[1].numel()]
        return receives, [self._post(self._group.send, "to", *each, tag) for each in going if each[1].numel()]

    def _post(self, verb: Any, way: str, rank: int, data: torch.Tensor, tag: int) -> Request:
        about = f"{way} rank {rank}"
        try:
            return Request(verb([data], rank, tag), about, data)
        except RuntimeError as error:
            raise broken(error, about) from error.__cause__

    def arrived(self, requests: list[Request]) -> bool:
        unseen = [each for each in requests if not each.done and each.watcher is None]
        if unseen:
            watcher = threading.Thread(target=_watch, args=[unseen], name="hpcgnn-arrivals", daemon=True)
            for each in unseen:
                each.watcher = watcher
            watcher.start()
        return all(each.done for each in requests)

    def _wait(self, requests: list[Request]) -> None:
        for each in requests:
            each.wait()

    def _all(self, verb: Any, *tensors: Any) -> Request:
        """The request of a collective verb."""
        try:
            return Request(verb(*tensors), "to the other ranks")
        except RuntimeError as error:
            raise broken(error, "to the other ranks") from error.__cause__

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        result = torch.empty_like(numbers)
        self._collective([self._exchange_parts(result, numbers, [], [])], kind, numbers.nbytes)
        return result

    def _exchange_parts(
        self, result: torch.Tensor, given: torch.Tensor, coming: list[int], going: list[int]
    ) -> Request:
        """Exchange parts with all ranks. coming, going: numbers of each; empty for equal parts."""
        return self._all(self._group.alltoall_base, result, given, coming, going, dist.AllToAllOptions())

    def _reduce_(self, numbers: torch.Tensor, kind: str, op: str) -> None:
        self._collective([self._reduction(numbers, op)], kind, numbers.nbytes)

    def _reduction(self, numbers: torch.Tensor, op: str) -> Request:
        options = dist.AllreduceOptions()
        options.reduceOp = cast(Any, _OPS[op])  # torch's stubs give the members another type
        return self._all(self._group.allreduce, [numbers], options)

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        if tensor.numel():
            self._collective([self._broadcast(bytes_of(tensor), root)], kind, tensor.nbytes)
        return tensor

    def _broadcast(self, data: torch.Tensor, root: int) -> Request:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        return self._all(self._group.broadcast, [data], options)

    def to_bytes(self, value: Any) -> bytes:
        """Plain data: whoever reaches a rank's port while the ranks connect may take another's place."""
        return plain_data.to_bytes(value)

    def of_bytes(self, data: bytes) -> Any:
        return plain_data.of_bytes(data)

    def allgather_object(self, value: Any) -> list[Any]:
        data = torch.frombuffer(bytearray(self.to_bytes(value)), dtype=torch.uint8)
        lengths = torch.empty(self.size, dtype=torch.int64)
        self._collective([self._gather(lengths, torch.tensor([data.numel()]))], "control", 8)
        sizes = lengths.tolist()
        short = max((size for size in sizes if size <= _LONG_OBJECT), default=0)
        padded = torch.zeros(short, dtype=torch.uint8)
        if data.numel() <= short:
            padded[: data.numel()] = data
        everyone = torch.empty(self.size * short, dtype=torch.uint8)
        found = [part[:size] for part, size in zip(everyone.view(self.size, short), sizes, strict=True)]
        long = [rank for rank, size in enumerate(sizes) if size > short]
        for rank in long:
            found[rank] = data if rank == self.rank else torch.empty(sizes[rank], dtype=torch.uint8)
        requests = [self._gather(everyone, padded)] if short else []
        requests += [self._broadcast(found[rank], rank) for rank in long]
        self._collective(requests, "control", data.numel())
        return [self.of_bytes(part.numpy().tobytes()) for part in found]

    def gather_object(self, value: Any, root: int = 0) -> list[Any] | None:
        """As messages to the root: gathers of torch's take equal parts alone."""
        data = torch.frombuffer(bytearray(self.to_bytes(value)), dtype=torch.uint8)
        lengths = torch.empty(self.size, dtype=torch.int64)
        self._collective([self._gather(lengths, torch.tensor([data.numel()]))], "control", 8)
        if self.rank != root:
            self.exchange([(root, data)], [], "control").finish()
            return None
        parts = [torch.empty(length, dtype=torch.uint8) for length in lengths.tolist()]
        parts[root] = data
        self.exchange([], [(rank, part) for rank, part in enumerate(parts) if rank != root], "control").finish()
        return [self.of_bytes(part.numpy().tobytes()) for part in parts]

    def _gather(self, everyone: torch.Tensor, mine: torch.Tensor) -> Request:
        """Equal parts of all ranks, one after another."""
        return self._all(self._group._allgather_base, everyone, mine)

    def _barrier(self) -> Request:
        return self._reduction(torch.zeros(1, dtype=torch.int32), "max")

    def close(self) -> None:
        """Wait for all ranks, and end the groups' threads: one that still held a tensor when the interpreter ends would
        take the process with it. Collective.
        """
        super().close()
        self._group = None
