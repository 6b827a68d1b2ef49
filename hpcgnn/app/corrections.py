"""Corrections of a model's outputs, before `evaluate` and `predict` use them, and tables of `predict`."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hpcgnn.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import torch

    from hpcgnn.app.loaded_model import LoadedModel
    from hpcgnn.app.predict import PredictRequest
    from hpcgnn.config import Config
    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.graphfile.storage import GraphFile
    from hpcgnn.nn.spec import ModelSpec

Result = TypeVar("Result")


class Correction(ABC):
    """A correction with its settings. name: its name in CORRECTIONS and in records."""

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


class PredictedTable(ABC):
    """A table that `predict` writes in place of rows of nodes. inputs: files that it reads; counted: its rows."""

    inputs: Sequence[str] = ()
    counted = "pairs"

    @abstractmethod
    def check(self, config: "Config", request: "PredictRequest") -> None:
        """Raise ConfigError if the table does not fit a run, or the rest of the request."""

    @abstractmethod
    def read(self, file: "GraphFile") -> None:
        """Read `inputs` on rank 0."""

    @abstractmethod
    def write(self, output: str, trained: "LoadedModel", logits: "torch.Tensor", nodes: "np.ndarray | None") -> int:
        """Write the file; return its number of rows. Collective, without autograd. nodes: listed nodes, ascending, on
        rank 0.
        """


@dataclass(frozen=True)
class OutputEntry(Generic[Result]):
    """A correction or a table on offer.

    Attributes:
        add: adds its options to a command.
        of: parsed arguments -> the result that they ask for, or None. Raises ConfigError.
    """

    add: Callable[[argparse.ArgumentParser], None]
    of: Callable[[argparse.Namespace], Result | None]


#: In the order of their work.
CORRECTIONS: Registry[OutputEntry[Correction]] = Registry("correction")
#: The first of those that arguments ask for is written.
TABLES: Registry[OutputEntry[PredictedTable]] = Registry("table")


def add_options(command: argparse.ArgumentParser, offered: Registry[OutputEntry[Result]]) -> None:
    """The options of all entries."""
    for entry in offered.values():
        entry.add(command)


def asked(arguments: argparse.Namespace, offered: Registry[OutputEntry[Result]]) -> list[Result]:
    """The results that arguments ask for. Raises ConfigError."""
    return [found for entry in offered.values() if (found := entry.of(arguments)) is not None]
