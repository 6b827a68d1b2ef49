"""The tensors that torch's own operations save for the backward pass, handed to the arena, which keeps them."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from hpcgnn.engine.hooks import Plugin
from hpcgnn.memory.keeping import Kept

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer


class SavedTensors(Plugin):
    """Hands over the tensors that the forward pass of a training step saves, but for those that last."""

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Hand over in the body."""
        lasting = lasting_storages(self._trainer)

        def pack(tensor: torch.Tensor) -> Kept:
            own = tensor.untyped_storage().data_ptr() in lasting or (tensor.is_leaf and tensor.requires_grad)
            return Kept(tensor) if own else self.keep(tensor.detach())

        with torch.autograd.graph.saved_tensors_hooks(pack, Kept.tensor):
            yield

    def keep(self, tensor: torch.Tensor) -> Kept:
        """A saved tensor for later."""
        return self._trainer.buffers.arena.keep(tensor)


def lasting_storages(trainer: "Trainer") -> set[int]:
    """Where tensors lie that are there from step to step."""
    local = trainer.local
    tensors = [*trainer.model.parameters(), *trainer.constants.values(), local.features]
    tensors += [each for each in (local.labels, local.original_id) if each is not None]
    return {each.untyped_storage().data_ptr() for each in tensors if isinstance(each, torch.Tensor)}
