"""Corrections of a model's outputs, before `evaluate` and `predict` use them."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcgnn.registry import Registry

if TYPE_CHECKING:
    import torch

    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.nn.spec import ModelSpec


class Correction(ABC):
    """A correction with its settings. name: that of CORRECTIONS, and of its record."""

    name: str

    @abstractmethod
    def check(self, task: str) -> None:
        """Raise ConfigError if the correction does not fit a run's task."""

    @abstractmethod
    def row_bytes(self, spec: "ModelSpec") -> int:
        """Bytes of the widest row that it exchanges."""

    @abstractmethod
    def correct(self, outputs: "torch.Tensor", trainer: "Trainer") -> "torch.Tensor":
        """Return corrected outputs (n_p, C) of own nodes. Collective, without autograd."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The settings, for files of results."""


@dataclass(frozen=True)
class CorrectionEntry:
    """A correction on offer.

    Attributes:
        add: adds its options to a command.
        of: parsed arguments -> the correction that they ask for, or None. Raises ConfigError.
    """

    add: Callable[[argparse.ArgumentParser], None]
    of: Callable[[argparse.Namespace], Correction | None]


#: In the order of their work.
CORRECTIONS: Registry[CorrectionEntry] = Registry("correction")


def add_corrections(command: argparse.ArgumentParser) -> None:
    """The options of all corrections."""
    for entry in CORRECTIONS.values():
        entry.add(command)


def corrections_of(arguments: argparse.Namespace) -> list[Correction]:
    """The corrections that arguments ask for. Raises ConfigError."""
    return [found for entry in CORRECTIONS.values() if (found := entry.of(arguments)) is not None]
