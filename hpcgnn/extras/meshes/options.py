"""The options of the task `fields`."""

import math
from dataclasses import dataclass
from functools import partial
from typing import cast

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.option_fields import option
from hpcgnn.options.task import TaskConfig

FIELDS, ALL = "fields", "all"
_option = partial(option, on_resume="same", needs={"task": (FIELDS,)})


def weights_of(text: str) -> dict[str, float]:
    """{field: weight} of `u=1,p=0.1`; {} for the empty text. Raises ConfigError."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.partition("=")
        try:
            weight = float(value) if sign and name and name not in found else math.nan
        except ValueError:
            weight = math.nan
        if not 0 <= weight < math.inf:
            raise ConfigError(f"--field-weights: expected weights from 0 on such as u=1,p=0.1, got {text!r}")
        found[name] = weight
    return found


@dataclass(frozen=True, kw_only=True)
class FieldsConfig(TaskConfig):
    """The options of fields. Times are counted by their places among the snapshots."""

    input_fields: str = _option(
        ALL,
        "fields: names of the fields that the model sees",
        details="Names are joined by commas. Other inputs than targets are read at each time.",
    )
    target_fields: str = _option(
        ALL,
        "fields: names of the fields that the model predicts",
        details="Names are joined by commas.",
    )
    target_kind: str = _option(
        "auto",
        "fields: predict the change of the targets, or their values",
        details="change: the difference from the time of the inputs, among which the targets must be. auto: change "
        "where all targets are inputs and --lag is not 0, else value.",
        choices=("auto", "change", "value"),
    )
    lag: int = _option(
        1, "fields: snapshots from the inputs to the targets", details="0: other fields of the same time.", least=0
    )
    history: int = _option(
        1,
        "fields: times that the model sees, --lag apart",
        least=1,
        most=64,
    )
    rollout: int = _option(
        1,
        "fields: steps of the model in a training step, with gradients",
        details="Each step but the first sees the forecast of the step before.",
        least=1,
        most=1024,
    )
    snapshots_per_step: int = _option(
        1,
        "fields: start times whose gradients one step averages",
        details="A rank holds the activations of one.",
        least=1,
    )
    noise: float = _option(
        0.0,
        "fields: deviation of noise on inputs that are targets",
        details="In deviations of each input column. The target of a change leads from the noisy value to the true "
        "one.",
        least=0,
    )
    field_weights: str = _option(
        "",
        "fields: weights of the targets in the loss, as u=1,p=0.1",
        details="Other targets have the weight 1.",
        check=weights_of,
    )


def options_of(config: Config) -> FieldsConfig:
    """The options of a configuration."""
    return cast(FieldsConfig, config.task)
