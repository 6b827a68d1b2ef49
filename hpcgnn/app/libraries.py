"""Other programs whose layers compute what some models do, under other names and in other shapes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hpcgnn.errors import CheckpointError
from hpcgnn.registry import Registry

if TYPE_CHECKING:
    import torch

    from hpcgnn.config import Config
    from hpcgnn.graphfile.schema import GraphMeta
    from hpcgnn.nn.spec import ModelSpec

Tensors = dict[str, "torch.Tensor"]
State = Mapping[str, "torch.Tensor"]
_MOST = 24  # tensors that an error names


class Library(ABC):
    """A program. title: its name in messages."""

    title: str

    @abstractmethod
    def reason_against(self, spec: "ModelSpec", meta: "GraphMeta", config: "Config") -> str:
        """Why a model as it was trained has no equal among the layers, or ''."""

    @abstractmethod
    def export(self, spec: "ModelSpec", state: State) -> Tensors:
        """Return their state dict for one of ours. `reason_against` has no objection to the model."""

    @abstractmethod
    def matches(self, spec: "ModelSpec", state: State, template: State) -> int:
        """How many tensors of a state dict have names that this program gives them.

        template: our state dict of the same model.
        """

    @abstractmethod
    def take(self, spec: "ModelSpec", state: State, template: State) -> Tensors:
        """Return our state dict for one of theirs. Raises CheckpointError with all names and shapes that do not fit."""


#: By the words of `--to`.
LIBRARIES: Registry[Library] = Registry("library")


def check_names(expected: State, given: State, optional: Iterable[str] = ()) -> None:
    """Raise CheckpointError, in one line, unless the same names are there with the same shapes."""
    wrong = [
        f"{name}: expected {list(tensor.shape)}, got {list(given[name].shape) if name in given else 'none'}"
        for name, tensor in expected.items()
        if name not in given or given[name].shape != tensor.shape
    ]
    wrong += [
        f"{name}: expected none, got {list(tensor.shape)}"
        for name, tensor in given.items()
        if name not in expected and name not in optional
    ]
    if wrong:
        more = f"; and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
        raise CheckpointError(
            f"{len(wrong)} tensors do not fit the model: {'; '.join(wrong[:_MOST])}{more}. Give the options of "
            "the model that these weights are of (--model, --layers, --hidden, --norm, --heads, …)"
        )
