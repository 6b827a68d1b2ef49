"""The options of `historical` and `batches`, and their checks."""

from dataclasses import dataclass
from typing import cast

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.option_fields import option
from hpcgnn.options import ScheduleConfig
from hpcgnn.plan.rules import models_with

NAMES = ("historical", "batches")


@dataclass(frozen=True, kw_only=True)
class StepsConfig(ScheduleConfig):
    """The options of steps on shares."""

    steps: int = option(
        8,
        "historical, batches: optimizer steps of an epoch; 1: sar",
        details="Each step is on a share of the clusters of the graph file (docs/schedules.md).",
        least=1,
        schedules=NAMES,
        on_resume="same",
    )
    history_dtype: str = option(
        "fp32",
        "historical: format of the last rows that are kept",
        details="bf16: half the bytes, also of messages. int8: a fourth. For layers that sum rows with given weights.",
        choices=("fp32", "bf16", "int8"),
        schedules=("historical",),
        on_resume="same",
    )
    extra_rows: float = option(
        0.0,
        "historical: computed rows of other shares, as a part of own ones",
        details="Those with most edges to the rows of the step (docs/schedules-measured.md).",
        least=0.0,
        most=100.0,
        schedules=("historical",),
        on_resume="same",
    )


def options_of(config: Config) -> StepsConfig:
    """The schedule's options of a configuration."""
    return cast(StepsConfig, config.schedule)


def check_options(config: Config, layers: int) -> None:
    """See ScheduleEntry."""
    model = config.model
    if model.norm == "batch" or model.jumping != "none":
        raise ConfigError(
            f"--schedule {config.schedule.schedule} computes a share of the rows in each step: expected --norm none "
            f"or layer and --jumping none, got --norm {model.norm} and --jumping {model.jumping}; or choose another "
            "schedule"
        )


def check_graph(exact: bool, config: Config, meta: GraphMeta, spec: ModelSpec) -> None:
    """See ScheduleEntry. exact: whether a step computes training nodes of its share alone, as `batches` does."""
    options, layers, precision = options_of(config), MODELS[spec.options.model].traits(spec), config.run.precision
    alone = layers.prunable or (spec.options.layers == 1 and spec.keeps_input)
    if exact and options.steps > 1 and not alone:
        raise ConfigError(
            f"--schedule {options.schedule} computes the training nodes of a share alone, and the last layer of "
            f"--model {spec.options.model} computes all nodes: expected another model, or --schedule sar"
        )
    if options.history_dtype != "fp32" and options.steps > 1 and not (layers.fixed_sums and precision == "fp32"):
        raise ConfigError(
            f"schedule.history_dtype {options.history_dtype} is for float32 rows that are summed with given weights: "
            f"expected {models_with(lambda each: each.fixed_sums)} and --precision fp32, or history_dtype fp32; got "
            f"--model {spec.options.model} and --precision {precision}"
        )
    if options.steps > meta.num_clusters:
        raise ConfigError(
            f"--steps {options.steps}: each step computes whole clusters of {config.data.graph}, and it has "
            f"{meta.num_clusters:,}: expected at most {meta.num_clusters:,}, or a file that is partitioned into more "
            "(python -m partition_tools partition add --clusters)"
        )
