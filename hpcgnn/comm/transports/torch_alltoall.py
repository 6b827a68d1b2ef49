"""The verbs for backends of torch.distributed without sends between two ranks (ccl), or without tags (nccl, xccl).

An exchange is one all-to-all of all ranks there (`alltoall.py`), and a rank may not leave it out: `pairwise` is False,
and what needs more is refused before the start. It goes through a device, if the backend has one.
"""

from typing import Any

import torch

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.health.watchdog import Watchdog
from hpcgnn.comm.transports.alltoall import Packed, pack
from hpcgnn.comm.transports.torch_verbs import Request, TorchCommunicator


class AllToAllCommunicator(TorchCommunicator):
    """The verbs over a process group that has collective calls only. device: where it wants its tensors."""

    pairwise = False

    def __init__(self, group: Any, rank: int, size: int, watchdog: Watchdog | None = None, device: str = "cpu") -> None:
        super().__init__(group, rank, size, watchdog)
        self._device = torch.device(device)

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> tuple[list[Request], list[Request]]:
        if self.size == 1 and not outgoing and not incoming:
            return [], []
        packed = pack(outgoing, incoming, tag, self.size)
        result = torch.empty(sum(packed.received), dtype=torch.uint8, device=self._device)
        header, given = packed.header.to(self._device), packed.given.to(self._device)
        told = torch.empty_like(header)
        first = self._exchange_parts(told, header, [], [])
        second = self._exchange_parts(result, given, packed.received, packed.sent)
        return [_Arrival(first, second, (header, told, given, result), packed)], []

    def _all(self, verb: Any, *tensors: Any) -> Request:
        """Tensors of the host come and go through the device."""
        if self._device.type == "cpu":
            return super()._all(verb, *tensors)
        here: list[tuple[torch.Tensor, torch.Tensor]] = []

        def there(value: Any) -> Any:
            if isinstance(value, list):
                return [there(each) for each in value]
            if not isinstance(value, torch.Tensor) or value.device == self._device:
                return value
            here.append((value, value.to(self._device)))
            return here[-1][1]

        return _Staged(super()._all(verb, *map(there, tensors)), here)


class _Staged(Request):
    """A request whose tensors were copied to a device: all go back, changed or not."""

    def __init__(self, inner: Request, tensors: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__(None, "")
        self._inner, self._tensors = inner, tensors

    def complete(self) -> None:
        self._inner.complete()
        for here, there in self._tensors:
            here.copy_(there)
        self.done = True


class _Arrival(Request):
    """An exchange on its way: first what it is, then itself, cut into the tensors that are waited for."""

    def __init__(self, first: Request, second: Request, kept: tuple[torch.Tensor, ...], packed: Packed) -> None:
        super().__init__(None, "", *kept)
        self._first, self._second, self._packed = first, second, packed

    def complete(self) -> None:
        self._first.complete()
        _, told, _, result = self._kept
        self._packed.check(told.tolist())
        self._second.complete()
        self._packed.unpack(result)
        self.done = True
