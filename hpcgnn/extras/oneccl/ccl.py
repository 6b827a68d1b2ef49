"""`--comm ccl`: torch.distributed with the package oneccl_bindings_for_pytorch, whose backend sends nothing between two
ranks.

An exchange is one all-to-all of all ranks (`alltoall.py`), and no rank may leave it out. So `pairwise` is False, and
options that need more are refused before the start.
"""

import importlib
from typing import Any

import torch
import torch.distributed as dist

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.start_torch import StartedTorch
from hpcgnn.comm.torch_transport import FOREVER, TorchCommunicator, TorchRequest
from hpcgnn.errors import ConfigError
from hpcgnn.extras.oneccl.alltoall import Packed, pack


class StartedCcl(StartedTorch):
    """torch.distributed with ccl, started."""

    backend = "ccl"

    def check(self) -> None:
        load_bindings()

    def communicator(self, store: Any, heartbeat: Heartbeat | None) -> TorchCommunicator:
        dist.init_process_group("ccl", store=store, rank=self.rank, world_size=self.size, timeout=FOREVER)
        return AllToAllCommunicator(dist.group.WORLD, self.rank, self.size, heartbeat)


def load_bindings() -> None:
    """Register the backend with torch. Raises ConfigError if it is not there."""
    reason = "this torch or this machine does not have it"
    try:
        importlib.import_module("oneccl_bindings_for_pytorch")
        if "ccl" in dist.Backend.backend_list:
            return
    except (ImportError, OSError, RuntimeError) as error:  # built for another torch, or a library of it is missing
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    raise ConfigError(
        f"--comm ccl cannot be used with torch {torch.__version__} ({reason}): install the oneccl_bindings_for_pytorch "
        "that belongs to this torch (the last is of torch 2.8; see docs/cluster.md), or use --comm torch"
    )


class AllToAllCommunicator(TorchCommunicator):
    """The verbs over a process group that has collective calls only."""

    pairwise = False

    def _begin(
        self, outgoing: list[Message], incoming: list[Message], tag: int
    ) -> tuple[list[TorchRequest], list[TorchRequest]]:
        if self.size == 1 and not outgoing and not incoming:
            return [], []
        packed = pack(outgoing, incoming, tag, self.size)
        result = torch.empty(sum(packed.received), dtype=torch.uint8)
        told = torch.empty_like(packed.header)
        first = self._exchange_parts(told, packed.header, [], [])
        second = self._exchange_parts(result, packed.given, packed.received, packed.sent)
        return [_CclArrival(first, second, (packed.header, told, packed.given, result), packed)], []


class _CclArrival(TorchRequest):
    """An exchange under way: its header first, then its data, cut into the waiting tensors."""

    def __init__(
        self, first: TorchRequest, second: TorchRequest, kept: tuple[torch.Tensor, ...], packed: Packed
    ) -> None:
        super().__init__(None, "", *kept)
        self._first, self._second, self._packed = first, second, packed

    def complete(self) -> None:
        self._first.complete()
        _, told, _, result = self._kept
        self._packed.check(told.tolist())
        self._second.complete()
        self._packed.unpack(result)
