"""Where the data of a job lie: in memory, unless an extra puts some of them elsewhere.

The tensors that torch's own operations save for the backward pass go to the arena, which keeps them.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from hpcgnn.engine.hooks import Plugin
from hpcgnn.memory.arena import SavedTensor
from hpcgnn.registry import Registry

if TYPE_CHECKING:
    from hpcgnn.comm.session import Session
    from hpcgnn.engine.probe import StepProbe
    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.exchange.buffers import HaloBuffers
    from hpcgnn.graph.local import LocalGraph
    from hpcgnn.graph.own_rows import OwnRows
    from hpcgnn.memory.stored_rows import StoredRows
    from hpcgnn.plan.run_plan import RunPlan


class MemoryPolicy:
    """Leaves all data in memory."""

    def features(self, local: "LocalGraph", source: "OwnRows") -> "StoredRows | None":
        """The features of a share, written elsewhere; None: they are read into memory. Collective. local: the share
        without its features.
        """
        return None

    def reads_in_place(self, local: "LocalGraph") -> bool:
        """Whether ranks of a node may read each other's rows in place, where it can pay. Collective."""
        return True

    def begin(self, trainer: "Trainer") -> None:
        """Before a trainer's first step, or evaluation. Collective."""


#: make(plan, session, buffers, probe, learns) -> MemoryPolicy, or None. The first that there is, is the job's.
MEMORY_POLICIES: Registry[Callable[["RunPlan", "Session", "HaloBuffers", "StepProbe", bool], MemoryPolicy | None]] = (
    Registry("memory policy")
)


def memory_policy(
    plan: "RunPlan", session: "Session", buffers: "HaloBuffers", probe: "StepProbe", learns: bool
) -> MemoryPolicy:
    """The policy of a job. learns: whether it trains a model."""
    found = (make(plan, session, buffers, probe, learns) for make in MEMORY_POLICIES.values())
    return next((policy for policy in found if policy is not None), MemoryPolicy())


class SavedTensors(Plugin):
    """Hands over the tensors that the forward pass of a training step saves, but for those that last."""

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Hand over in the body."""
        lasting, constants = lasting_storages(self._trainer), self._trainer.constants
        known = len(constants)

        def pack(tensor: torch.Tensor) -> SavedTensor:
            address = tensor.untyped_storage().data_ptr()
            own = address in lasting or (tensor.is_leaf and tensor.requires_grad)
            # Constants that this step has made are not among those.
            own = own or (len(constants) > known and address in addresses(constants.values()))
            return SavedTensor(tensor) if own else self.keep(tensor.detach())

        with torch.autograd.graph.saved_tensors_hooks(pack, SavedTensor.tensor):
            yield

    def keep(self, tensor: torch.Tensor) -> SavedTensor:
        """A saved tensor for later."""
        return self._trainer.buffers.arena.keep(tensor)


def addresses(tensors: Iterable[Any]) -> set[int]:
    """Where those of some objects that are tensors lie."""
    return {each.untyped_storage().data_ptr() for each in tensors if isinstance(each, torch.Tensor)}


def lasting_storages(trainer: "Trainer") -> set[int]:
    """Where tensors lie that are there from step to step."""
    local = trainer.local
    tensors = *trainer.model.parameters(), *trainer.constants.values(), local.features, local.labels, local.original_id
    return addresses(tensors)
