"""Which options go together, by the traits of the model, the schedule, the task and the transport.

Each rule is a condition and the refusal that a user reads. They need no graph: `check_options` runs as soon as options
are read, on the login node as well as in a job.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

from hpcgnn.comm.session import TRANSPORTS
from hpcgnn.config import Config
from hpcgnn.declaring import allowed
from hpcgnn.errors import ConfigError
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import PLAIN, ModelSpec
from hpcgnn.options.inputs import inputs_of, made_flags
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.tasks.registry import task_traits
from hpcgnn.traits import LayerTraits, ScheduleTraits, TaskTraits, TransportTraits


@dataclass(frozen=True)
class Selection:
    """A configuration with the entries and traits of its model, schedule and task."""

    config: Config

    @cached_property
    def model(self) -> ModelEntry:
        return MODELS[self.config.model.model]

    @cached_property
    def layers(self) -> LayerTraits:
        """The traits of the model's layers, as far as the configuration alone decides."""
        return self.model.traits(self._layer_spec)

    @cached_property
    def divisor(self) -> str:
        """See ModelEntry.divisor."""
        return self.model.divisor(self._layer_spec)

    @property
    def _layer_spec(self) -> ModelSpec:
        return replace(PLAIN, aggregator=self.config.model.aggregator)

    @cached_property
    def entry(self) -> ScheduleEntry:
        return SCHEDULES[self.config.schedule.schedule]

    @cached_property
    def schedule(self) -> ScheduleTraits:
        return self.entry.traits

    @cached_property
    def task(self) -> TaskTraits:
        return task_traits(self.config.task.task)

    @cached_property
    def transport(self) -> TransportTraits:
        return TRANSPORTS[self.config.run.comm].traits

    @property
    def learned(self) -> bool:
        """Whether features are learned."""
        return inputs_of(self.config.task.features).learned > 0

    @property
    def changing(self) -> str:
        """The option by which the input changes from step to step, or ''."""
        return next(iter([_features(self)] * self.learned + made_flags(self.config.task)), "")


@dataclass(frozen=True)
class Rule:
    """A rule between options.

    Attributes:
        broken: whether a selection breaks the rule.
        refusal: the error message, with the expected value and the remedy.
    """

    broken: Callable[[Selection], bool]
    refusal: Callable[[Selection], str]


def check_options(config: Config) -> None:
    """Raise ConfigError for the first rule that a configuration breaks."""
    _check_owners(config)
    selection = Selection(config)
    for rule in RULES:
        if rule.broken(selection):
            raise ConfigError(rule.refusal(selection))
    selection.entry.check(config, config.model.layers if selection.model.stacked else 1)


def schedules_with(allows: Callable[[ScheduleTraits], bool]) -> str:
    """The names of the schedules whose traits allow something, for a message."""
    return " or ".join(name for name, entry in SCHEDULES.items() if allows(entry.traits))


def models_with(allows: Callable[[LayerTraits], bool]) -> str:
    """The names of the models whose layers' traits allow something with the usual options, for a message."""
    names = [name for name, entry in MODELS.items() if allows(entry.traits())]
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)


def _check_owners(config: Config) -> None:
    """Raise ConfigError for an option of another schedule than the chosen one."""
    options, traits = config.schedule, {name: entry.traits for name, entry in SCHEDULES.items()}
    for declared in fields(options):
        owners = allowed(declared.metadata["schedules"], traits) or (options.schedule,)
        if options.schedule not in owners and getattr(options, declared.name) != declared.default:
            raise ConfigError(
                f"--{declared.name.replace('_', '-')} belongs to --schedule {owners[0]}, got --schedule "
                f"{options.schedule}; leave it out, or choose that schedule"
            )


def _exact(traits: ScheduleTraits) -> bool:
    return traits.exact_epochs


def _features(of: Selection) -> str:
    return f"--features {of.config.task.features}"


#: In the order in which they are checked. Packages of `hpcgnn.extras` append theirs.
RULES: list[Rule] = [
    Rule(
        lambda of: of.schedule.layer_by_layer and of.layers.neighbours == "hops",
        lambda of: (
            f"--schedule {of.config.schedule.schedule} trains layers one by one on what their neighbours have sent "
            f"once, and the hops of --model {of.config.model.model} change in every step: expected --schedule "
            f"{schedules_with(lambda traits: traits.changing_input)}"
        ),
    ),
    Rule(
        lambda of: of.schedule.layer_by_layer and of.config.model.jumping != "none",
        lambda of: (
            f"--jumping {of.config.model.jumping} trains all layers together with a map that sees them, and --schedule "
            f"{of.config.schedule.schedule} trains them one by one: expected --jumping none, or another schedule"
        ),
    ),
    Rule(
        lambda of: of.schedule.layer_by_layer and of.config.schedule.halo_dtype != "fp32",
        lambda of: (
            f"--halo-dtype {of.config.schedule.halo_dtype} is not for --schedule {of.config.schedule.schedule}, which "
            "sends a layer's input once and keeps it: expected fp32, or another schedule"
        ),
    ),
    Rule(
        lambda of: of.config.schedule.assignment != "metis" and bool(of.config.data.partition),
        lambda of: (
            f"--assignment {of.config.schedule.assignment} makes a map of its own, got --partition "
            f"{of.config.data.partition} besides; leave one of them out"
        ),
    ),
    Rule(
        lambda of: of.config.data.inductive and of.changing != "",
        lambda of: (
            f"--inductive trains on training nodes alone, and {of.changing} gives each node of the whole graph "
            "something of its own in training; leave one of them out"
        ),
    ),
    Rule(
        lambda of: of.config.data.inductive and inputs_of(of.config.task.features).edges,
        lambda of: (
            f"--inductive trains without the edges of other nodes, and {_features(of)} is a mean over all in-edges; "
            "leave one of them out"
        ),
    ),
    Rule(
        lambda of: of.config.data.inductive and not of.schedule.exact_epochs,
        lambda of: (
            f"--inductive is for --schedule {schedules_with(_exact)}, got {of.config.schedule.schedule}: expected "
            f"{schedules_with(_exact)}, or no --inductive"
        ),
    ),
    Rule(
        lambda of: of.changing != "" and not of.schedule.changing_input,
        lambda of: (
            f"{of.changing} changes the input in every step, and --schedule {of.config.schedule.schedule} "
            f"needs an input that does not change; expected {schedules_with(lambda traits: traits.changing_input)}"
        ),
    ),
    Rule(
        lambda of: of.learned and of.config.optim.ema > 0,
        lambda of: (
            f"--ema {of.config.optim.ema:g} averages the parameters of a model, and not the learned features of "
            f"{_features(of)}; leave one of them out"
        ),
    ),
    Rule(
        lambda of: of.changing != "" and of.config.model.keep_input == "always",
        lambda of: (
            f"--keep-input always keeps an aggregate of features that do not change, got {of.changing}; leave one of "
            "them out"
        ),
    ),
    Rule(
        lambda of: of.config.run.matmul != "highest" and of.config.run.precision == "fp64",
        lambda of: (
            f"--matmul {of.config.run.matmul} rounds the factors of fp32 products, got --precision fp64; leave one of "
            "them out"
        ),
    ),
    Rule(
        lambda of: of.config.run.precision == "mixed" and not of.layers.mixed_precision,
        lambda of: (
            f"--precision mixed: expected --model {models_with(lambda traits: traits.mixed_precision)} with "
            f"--aggregator mean, got --model {of.config.model.model} with --aggregator {of.config.model.aggregator}; "
            "use --precision fp32"
        ),
    ),
    Rule(
        lambda of: of.config.run.precision == "mixed" and of.config.model.jumping != "none",
        lambda of: (
            f"--precision mixed: expected --jumping none, got {of.config.model.jumping}, whose map sees hidden states "
            "in fp32; use --precision fp32"
        ),
    ),
    Rule(
        lambda of: (
            of.config.run.precision == "mixed"
            and not (of.schedule.exact_epochs and of.config.schedule.halo_dtype in ("fp32", "bf16"))
        ),
        lambda of: (
            f"--precision mixed: expected --schedule {schedules_with(_exact)}, which then exchanges bf16, got "
            f"{of.config.schedule.schedule} with --halo-dtype {of.config.schedule.halo_dtype}; use --precision fp32"
        ),
    ),
    Rule(
        lambda of: of.schedule.pairwise and not of.transport.pairwise,
        lambda of: (
            f"--schedule {of.config.schedule.schedule} sends messages between two ranks alone, which --comm "
            f"{of.config.run.comm} cannot: expected --comm mpi or torch"
        ),
    ),
]
