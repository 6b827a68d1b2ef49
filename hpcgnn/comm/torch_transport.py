"""The communicator's operations over a process group of torch.distributed, for backends that send and receive (gloo).

gloo has a thread of its own that moves messages while the rank computes, so no helper thread of ours is needed. A rank
that waits for it sleeps, so ranks may share cores. A wait with a limit breaks all connections when the limit passes. So
waits have none, and the watchdog ends a standstill.
"""

import io
import pickle
import re
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.launcher import chosen_interface
from hpcgnn.comm.transport import MessageTransport, bytes_of
from hpcgnn.errors import ConfigError, LostConnection

#: The watchdog ends a job that stands still; torch's own limits would end one that is only slow.
FOREVER = timedelta(days=3650)

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_OF_ARRAYS = {"_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"}
_BROKEN = re.compile("connect|broken pipe|reset by|closed|(read|write) error|timed out", re.IGNORECASE)


class PlainData(pickle.Unpickler):
    """Reads numbers, texts, their collections and numpy's arrays, and runs no code for anything else.

    `load` raises UnpicklingError for other data.
    """

    def find_class(self, module: str, name: str) -> Any:
        """A name of numpy's pickles, or a named tuple of this package."""
        root = module.partition(".")[0]
        if root == "numpy" and name in _OF_ARRAYS:
            return super().find_class(module, name)
        if root == "hpcgnn":
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, tuple):
                return found
        raise pickle.UnpicklingError(f"objects between ranks are plain data, got {module}.{name}")


class TorchRequest:
    """A piece of work of torch's. about: whom it is with, in words; kept: what it needs until then."""

    def __init__(self, work: Any, about: str, *kept: Any) -> None:
        self._work, self._about, self._kept = work, about, kept

    def complete(self) -> None:
        """Wait for it."""
        try:
            self._work.wait()
        except RuntimeError as error:
            raise broken(error, self._about) from error.__cause__


def broken(error: RuntimeError, about: str) -> Exception:
    """Turn torch's error about a lost connection into a LostConnection of one line; return other errors unchanged."""
    words = str(error).split("] ", 1)[-1].split(". This is typically")[0]
    if _BROKEN.search(words) is None:
        return error
    return LostConnection(f"the connection {about} is broken: {' '.join(words.split())}")


def _request(about: str, verb: Any, *arguments: Any) -> TorchRequest:
    """The TorchRequest of a call of torch's."""
    try:
        return TorchRequest(verb(*arguments), about, *arguments)
    except RuntimeError as error:
        raise broken(error, about) from error.__cause__


class TorchCommunicator(MessageTransport):
    """The operations over a process group.

    Attributes:
        group: torch's group.
        heartbeat: as for `MessageTransport`.
    """

    def __init__(self, group: Any, rank: int, size: int, heartbeat: Heartbeat | None = None) -> None:
        super().__init__(rank, size, heartbeat)
        self._group = group

    def _begin(
        self, outgoing: list[Message], incoming: list[Message], tag: int
    ) -> tuple[list[TorchRequest], list[TorchRequest]]:
        coming = [(rank, bytes_of(tensor)) for rank, tensor in incoming]
        going = [(rank, bytes_of(tensor)) for rank, tensor in outgoing]
        # Both ends know of a message without bytes, so it is not passed to gloo.
        receives = [self._post(self._group.recv, "from", *each, tag) for each in coming if each[1].numel()]
        return receives, [self._post(self._group.send, "to", *each, tag) for each in going if each[1].numel()]

    def _post(self, verb: Any, way: str, rank: int, data: torch.Tensor, tag: int) -> TorchRequest:
        return _request(f"{way} rank {rank}", verb, [data], rank, tag)

    def _wait(self, requests: list[TorchRequest]) -> None:
        for each in requests:
            each.complete()

    def _all(self, verb: Any, *arguments: Any) -> TorchRequest:
        """The request of a collective verb."""
        return _request("to the other ranks", verb, *arguments)

    def alltoall(self, numbers: torch.Tensor, kind: str) -> torch.Tensor:
        result = torch.empty_like(numbers)
        self._collective([self._exchange_parts(result, numbers, [], [])], kind, numbers.nbytes)
        return result

    def _exchange_parts(
        self, result: torch.Tensor, given: torch.Tensor, coming: list[int], going: list[int]
    ) -> TorchRequest:
        """Exchange parts with all ranks. coming, going: numbers of each; empty for equal parts."""
        return self._all(self._group.alltoall_base, result, given, coming, going, dist.AllToAllOptions())

    def _reduce_(self, numbers: torch.Tensor, kind: str, op: str) -> None:
        self._collective([self._reduction(numbers, op)], kind, numbers.nbytes)

    def _reduction(self, numbers: torch.Tensor, op: str) -> TorchRequest:
        options = dist.AllreduceOptions()
        options.reduceOp = cast(Any, _OPS[op])  # torch's stubs give the members another type
        return self._all(self._group.allreduce, [numbers], options)

    def broadcast_(self, tensor: torch.Tensor, root: int, kind: str) -> torch.Tensor:
        if tensor.numel():
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 0
            request = self._all(self._group.broadcast, [bytes_of(tensor)], options)
            self._collective([request], kind, tensor.nbytes)
        return tensor

    def of_bytes(self, data: bytes) -> Any:
        """Plain data: whoever reaches a rank's port while the ranks connect may take another's place."""
        return PlainData(io.BytesIO(data)).load()

    def _gather(self, data: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        """Padded to the longest: torch gathers equal parts alone."""
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: data.numel()] = data
        everyone = torch.empty(self.size, len(padded), dtype=torch.uint8)
        request = self._all(self._group._allgather_base, everyone.view(-1), padded)
        self._collective([request], "control", data.numel())
        return [part[:size] for part, size in zip(everyone, sizes, strict=True)]

    def _barrier(self) -> TorchRequest:
        return self._reduction(torch.zeros(1, dtype=torch.int32), "max")

    def close(self) -> None:
        """Wait for all ranks, and end the groups' threads: one that still held a tensor when the interpreter ends would
        take the process with it. Collective.
        """
        super().close()
        self._group = None


def gloo_communicator(store: Any, rank: int, size: int, address: str, heartbeat: Heartbeat | None) -> TorchCommunicator:
    """The verbs over a new process group. Collective. store: torch's, of all ranks; address: of this rank's node on
    the network that leads to the others. Raises ConfigError or RuntimeError.
    """
    return TorchCommunicator(_gloo(store, rank, size, address), rank, size, heartbeat)


def _gloo(store: Any, rank: int, size: int, address: str) -> Any:
    """torch would listen where the host's name leads, which on many nodes is the loopback."""
    gloo: Any = dist.ProcessGroupGloo  # torch's stubs do not know its options
    options, interface = gloo._Options(), chosen_interface()
    try:
        if interface is not None:
            devices = [gloo.create_device(interface=each) for each in interface.split(",")]
        else:
            devices = [gloo.create_device(hostname=address)]
    except RuntimeError as error:
        raise ConfigError(
            f"gloo cannot use {f'GLOO_SOCKET_IFNAME={interface}' if interface else address}: "
            f"{str(error).splitlines()[0]}; expected an interface of this node (`ip -brief address` lists them)"
        ) from error
    options._devices, options._timeout = devices, FOREVER
    return gloo(store, rank, size, options)
