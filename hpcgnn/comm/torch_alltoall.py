"""The verbs for backends of torch.distributed without sends between two ranks (ccl), or without tags (nccl, xccl).

An exchange is one all-to-all of all ranks there, and a rank may not leave it out, nor begin exchanges in another order
than the others: `alone` is False, and what needs more is refused before the start. Each exchange carries what it is
and how much comes, so that ranks that are out of step say so, and do not take one message for another. What goes and
comes is copied once more, since an all-to-all takes it in one piece; on a device, if the backend has one.
"""

from typing import Any

import torch

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.torch_verbs import Request, TorchCommunicator
from hpcgnn.comm.transport import bytes_of
from hpcgnn.comm.watchdog import Watchdog

# A header: the tag above so many bits of bytes.
_TAG_SHIFT = 48


class AllToAllCommunicator(TorchCommunicator):
    """The verbs over a process group that has collective calls only. device: where it wants its tensors."""

    pairwise = False

    def __init__(self, group: Any, rank: int, size: int, watchdog: Watchdog | None = None, device: str = "cpu") -> None:
        super().__init__(group, rank, size, watchdog)
        self._device = torch.device(device)

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> tuple[list[Request], list[Request]]:
        if self.size == 1 and not outgoing and not incoming:
            return [], []
        going: list[list[torch.Tensor]] = [[] for _ in range(self.size)]
        coming: list[list[torch.Tensor]] = [[] for _ in range(self.size)]
        for messages, parts in ((outgoing, going), (incoming, coming)):
            for rank, tensor in messages:
                parts[rank].append(bytes_of(tensor))
        sizes, expected = ([sum(part.numel() for part in parts) for parts in each] for each in (going, coming))
        given = torch.cat([part for parts in going for part in parts] or [torch.empty(0, dtype=torch.uint8)])
        result = torch.empty(sum(expected), dtype=torch.uint8, device=self._device)
        header = torch.tensor([size | tag << _TAG_SHIFT for size in sizes], device=self._device)
        told = torch.empty_like(header)
        first = self._exchange_parts(told, header, [], [])
        given = given.to(self._device)
        second = self._exchange_parts(result, given, expected, sizes)
        wanted = [size | tag << _TAG_SHIFT for size in expected]
        arriving = [part for parts in coming for part in parts]
        return [_Arrival(first, second, (header, told, given, result), wanted, arriving)], []

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

    def __init__(
        self,
        first: Request,
        second: Request,
        kept: tuple[torch.Tensor, ...],
        wanted: list[int],
        arriving: list[torch.Tensor],
    ) -> None:
        super().__init__(None, "", *kept)
        self._first, self._second = first, second
        self._wanted, self._arriving = wanted, arriving

    def complete(self) -> None:
        self._first.complete()
        _, told, _, result = self._kept
        found = told.tolist()
        if found != self._wanted:
            rank = next(rank for rank, (one, other) in enumerate(zip(found, self._wanted)) if one != other)
            low = (1 << _TAG_SHIFT) - 1
            raise RuntimeError(
                f"ranks are out of step: from rank {rank} came {found[rank] & low} bytes of kind {found[rank] >> 48}, "
                f"expected {self._wanted[rank] & low} of {self._wanted[rank] >> 48}; with this backend all ranks must "
                "begin the same exchanges in the same order"
            )
        self._second.complete()
        for target, part in zip(self._arriving, result.split([each.numel() for each in self._arriving])):
            target.copy_(part)
        self.done = True
