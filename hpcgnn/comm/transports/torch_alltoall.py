"""The operations for a backend of torch.distributed without sends between two ranks (ccl).

An exchange is one all-to-all of all ranks (`alltoall.py`), and no rank may leave it out. So `pairwise` is False, and
options that need more are refused before the start.
"""

import torch

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.transports.alltoall import Packed, pack
from hpcgnn.comm.transports.torch_verbs import Request, TorchCommunicator


class AllToAllCommunicator(TorchCommunicator):
    """The verbs over a process group that has collective calls only."""

    pairwise = False

    def _begin(self, outgoing: list[Message], incoming: list[Message], tag: int) -> tuple[list[Request], list[Request]]:
        if self.size == 1 and not outgoing and not incoming:
            return [], []
        packed = pack(outgoing, incoming, tag, self.size)
        result = torch.empty(sum(packed.received), dtype=torch.uint8)
        told = torch.empty_like(packed.header)
        first = self._exchange_parts(told, packed.header, [], [])
        second = self._exchange_parts(result, packed.given, packed.received, packed.sent)
        return [_Arrival(first, second, (packed.header, told, packed.given, result), packed)], []


class _Arrival(Request):
    """An exchange under way: its header first, then its data, cut into the waiting tensors."""

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
