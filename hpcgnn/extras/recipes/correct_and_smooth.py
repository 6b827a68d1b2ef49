"""Correct & Smooth (Huang et al., ICLR'21) of the outputs of `hpcgnn evaluate` and `predict`."""

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from hpcgnn.app.corrections import Correction, OutputEntry
from hpcgnn.engine.trainer import Trainer
from hpcgnn.errors import ConfigError
from hpcgnn.extras.recipes.spreading import Spreading, as_logits
from hpcgnn.graphfile.label_files import CLASSIFICATION
from hpcgnn.nn.spec import ModelSpec

# Larger factors of an error are of rows that hardly any error has reached.
_LARGEST = 1000.0


def number(kind: Callable[[str], Any], least: float, most: float, expected: str) -> Callable[[str], Any]:
    """The type of an option: a number from `least` to `most`. It raises ArgumentTypeError."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return parse


part = number(float, 0, 1, "a number from 0 to 1")
steps = number(int, 1, 100_000, "a whole number from 1 to 100000")


@dataclass(frozen=True)
class CorrectAndSmooth(Correction):
    """Settings of Correct & Smooth.

    Attributes:
        steps: number of steps of each of the two.
        correct_alpha, smooth_alpha: weight of the neighbours in a step.
    """

    name = "correct_and_smooth"
    steps: int = 50
    correct_alpha: float = 0.8
    smooth_alpha: float = 0.8

    def check(self, task: str) -> None:
        if task != CLASSIFICATION:
            raise ConfigError.on_all(
                f"--correct-and-smooth spreads one class per node, and the run is of {task}; leave it out"
            )

    def row_bytes(self, spec: ModelSpec) -> int:
        return spec.classes * spec.dtype.itemsize

    def correct(self, outputs: torch.Tensor, trainer: Trainer) -> torch.Tensor:
        dtype = trainer.plan.spec.dtype
        spreading = Spreading(trainer.local, trainer.comm, trainer.buffers, dtype)
        return as_logits(self.corrected(outputs.to(dtype).softmax(1), spreading))

    def corrected(self, probabilities: torch.Tensor, spreading: Spreading) -> torch.Tensor:
        """Return scores (n_p, C) in [0, 1] for the model's probabilities (n_p, C). Collective.

        The model's errors on the training nodes spread and are added, each node's scaled to the mean size (autoscale).
        Then the labels of these nodes spread with the
        scores of all others.
        """
        known, error = spreading.known, torch.zeros_like(probabilities)
        error[known] = spreading.hot - probabilities[known]
        total = error.abs().sum(dtype=torch.float64).reshape(1)
        mean = float(spreading.total(total)) / spreading.num_known
        spread = spreading.spread(error, self.correct_alpha, self.steps, lambda y: y.clamp_(-1, 1))
        factor = mean / spread.abs().sum(1, keepdim=True)
        scores = probabilities + torch.where(factor <= _LARGEST, factor, 1.0) * spread
        scores[known] = spreading.hot
        return spreading.spread(scores, self.smooth_alpha, self.steps, lambda y: y.clamp_(0, 1))

    def record(self) -> dict[str, Any]:
        return asdict(self)


def _add(command: argparse.ArgumentParser) -> None:
    usual = CorrectAndSmooth()
    group = command.add_argument_group(
        "Correct & Smooth (Huang et al., 2021; one class per node)",
        "Spread the model's errors on the training nodes along edges and add them, then spread the training nodes' "
        "labels with the scores of all others. Choose the numbers by the validation nodes. The graph is as the run has "
        "it, with the self loops that its model adds.",
    )
    group.add_argument("--correct-and-smooth", action="store_true", help="correct and smooth the outputs first")
    for flag, kind, metavar, default, text in (
        ("--spread-steps", steps, "N", usual.steps, "steps of each of the two"),
        ("--correct-alpha", part, "A", usual.correct_alpha, "part of the error that comes from the neighbours"),
        ("--smooth-alpha", part, "A", usual.smooth_alpha, "part of the scores that comes from the neighbours"),
    ):
        group.add_argument(flag, type=kind, metavar=metavar, help=f"{text} (default: {default})")


def _of(arguments: argparse.Namespace) -> Correction | None:
    """Return the requested settings, or None. Raises ConfigError for a number without its main option."""
    names = {"spread_steps": "steps", "correct_alpha": "correct_alpha", "smooth_alpha": "smooth_alpha"}
    given = {name: vars(arguments)[flag] for flag, name in names.items() if vars(arguments)[flag] is not None}
    if arguments.correct_and_smooth:
        return CorrectAndSmooth(**given)
    if given:
        flag = next(flag for flag, name in names.items() if name in given)
        raise ConfigError(f"--{flag.replace('_', '-')} belongs to --correct-and-smooth; give that too, or leave it out")
    return None


ENTRY = OutputEntry(_add, _of)
