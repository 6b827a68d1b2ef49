"""Correct & Smooth as options of `hpcgnn evaluate` and `predict`: their parsing and their settings.

Only the code behind them imports torch (app/spreading.py).
"""

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.labels import CLASSIFICATION

# Larger factors of an error are of rows that hardly any error has reached.
LARGEST = 1000.0


@dataclass(frozen=True)
class CorrectAndSmooth:
    """Settings of Correct & Smooth.

    Attributes:
        steps: number of steps of each of the two.
        correct_alpha, smooth_alpha: weight of the neighbours in a step.
        scale: factor of the added error, 0 for a factor per node (autoscale).
    """

    steps: int = 50
    correct_alpha: float = 0.8
    smooth_alpha: float = 0.8
    scale: float = 0.0

    def check(self, task: str) -> None:
        """Raise ConfigError if a run's task is not one class per node."""
        if task != CLASSIFICATION:
            raise ConfigError.on_all(
                f"--correct-and-smooth spreads one class per node, and the run is of {task}; leave it out"
            )

    def record(self) -> dict[str, Any]:
        """For files of results."""
        return asdict(self) | {"scale": self.scale or "auto"}


def add_correction(command: argparse.ArgumentParser) -> None:
    """The options of Correct & Smooth."""
    group = command.add_argument_group(
        "Correct & Smooth (Huang et al., 2021; one class per node)",
        "Spread the model's errors on the training nodes along edges and add them, then spread the training nodes' "
        "labels with the scores of all others. Choose the numbers by the validation nodes. The graph is as the run has "
        "it, with the self loops that its model adds.",
    )
    group.add_argument("--correct-and-smooth", action="store_true", help="correct and smooth the outputs first")
    for flag, kind, metavar, default, text in (
        ("--spread-steps", steps, "N", CorrectAndSmooth.steps, "steps of each of the two"),
        (
            "--correct-alpha",
            part,
            "A",
            CorrectAndSmooth.correct_alpha,
            "part of the error that comes from the neighbours",
        ),
        (
            "--smooth-alpha",
            part,
            "A",
            CorrectAndSmooth.smooth_alpha,
            "part of the scores that comes from the neighbours",
        ),
        (
            "--correct-scale",
            scale,
            "X",
            "auto",
            "factor of the error that is added; auto gives each node's the mean size of the training nodes' errors",
        ),
    ):
        group.add_argument(flag, type=kind, metavar=metavar, help=f"{text} (default: {default})")


def correction_of(arguments: argparse.Namespace) -> CorrectAndSmooth | None:
    """Return the requested settings, or None. Raises ConfigError for a number without its main option."""
    names = {"spread_steps": "steps", "correct_alpha": "correct_alpha", "smooth_alpha": "smooth_alpha"}
    names["correct_scale"] = "scale"
    given = {name: vars(arguments)[flag] for flag, name in names.items() if vars(arguments)[flag] is not None}
    if arguments.correct_and_smooth:
        return CorrectAndSmooth(**given)
    if given:
        flag = next(flag for flag, name in names.items() if name in given)
        raise ConfigError(f"--{flag.replace('_', '-')} belongs to --correct-and-smooth; give that too, or leave it out")
    return None


def part(text: str) -> float:
    """Parse a number in [0, 1]. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def scale(text: str) -> float:
    """Parse a number above 0, or `auto` as 0. Raises ArgumentTypeError."""
    try:
        value = 0.0 if text == "auto" else float(text)
    except ValueError:
        value = -1.0
    if text != "auto" and not 0 < value <= LARGEST:
        raise argparse.ArgumentTypeError(f"expected auto, or a number above 0 and at most {LARGEST:g}, got {text!r}")
    return value


def steps(text: str) -> int:
    """Parse a number of steps. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 100000, got {text!r}")
    return int(text)
