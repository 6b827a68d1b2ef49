"""Which options go together, by the traits of the model, the schedule, the task and the transport.

A rule is a generator of refusals: each condition stands beside the line that a user reads. These rules need no graph:
`check_options` runs as soon as options are read, on the login node as well as in a job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from hpcgnn.comm.session import TRANSPORTS
from hpcgnn.config import Config
from hpcgnn.declaring import allowed, flag
from hpcgnn.errors import ConfigError
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import PLAIN
from hpcgnn.options.inputs import inputs_of, made_flags
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.tasks.registry import task_traits
from hpcgnn.traits import LayerTraits, ScheduleTraits, TaskTraits, TransportTraits


@dataclass(frozen=True)
class Selection:
    """A configuration with the entries and traits of its model, schedule, task and transport."""

    config: Config

    @property
    def model(self) -> ModelEntry:
        return MODELS[self.config.model.model]

    @property
    def layers(self) -> LayerTraits:
        """The traits of the model's layers, as far as the configuration alone decides."""
        return self.model.traits()

    @property
    def divisor(self) -> str:
        """See ModelEntry.divisor."""
        return self.model.divisor(PLAIN)

    @property
    def entry(self) -> ScheduleEntry:
        return SCHEDULES[self.config.schedule.schedule]

    @property
    def schedule(self) -> ScheduleTraits:
        return self.entry.traits

    @property
    def task(self) -> TaskTraits:
        return task_traits(self.config.task.task)

    @property
    def transport(self) -> TransportTraits:
        return TRANSPORTS[self.config.run.comm].traits

    @property
    def changing(self) -> str:
        """The option by which the input changes from step to step, or ''."""
        if inputs_of(self.config.task.features).learned:
            return f"--features {self.config.task.features}"
        return next(iter(made_flags(self.config.task)), "")


def check_options(config: Config) -> None:
    """Raise ConfigError for the first rule that a configuration breaks."""
    selection = Selection(config)
    for rule in RULES:
        for refusal in rule(selection):
            raise ConfigError(refusal)
    selection.entry.check(config, config.model.layers if selection.model.stacked else 1)


def schedules_with(allows: Callable[[ScheduleTraits], bool]) -> str:
    """The names of the schedules whose traits allow something, for a message."""
    return " or ".join(name for name, entry in SCHEDULES.items() if allows(entry.traits))


def models_with(allows: Callable[[LayerTraits], bool]) -> str:
    """The names of the models whose layers' traits allow something with the usual options, for a message."""
    names = [name for name, entry in MODELS.items() if allows(entry.traits())]
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)


def _owners(of: Selection) -> Iterator[str]:
    """Options of another schedule than the chosen one."""
    options, traits = of.config.schedule, {name: entry.traits for name, entry in SCHEDULES.items()}
    for declared in fields(options):
        owners = allowed(declared.metadata["schedules"], traits) or (options.schedule,)
        if options.schedule not in owners and getattr(options, declared.name) != declared.default:
            yield (
                f"{flag(declared.name)} belongs to --schedule {owners[0]}, got --schedule "
                f"{options.schedule}; leave it out, or choose that schedule"
            )


def _layer_by_layer(of: Selection) -> Iterator[str]:
    """Schedules that train layers one by one."""
    model, options = of.config.model, of.config.schedule
    if not of.schedule.layer_by_layer:
        return
    if of.layers.neighbours == "hops":
        yield (
            f"--schedule {options.schedule} trains layers one by one on what their neighbours have sent once, and the "
            f"hops of --model {model.model} change in every step: expected --schedule "
            f"{schedules_with(lambda traits: traits.changing_input)}"
        )
    if model.jumping != "none":
        yield (
            f"--jumping {model.jumping} trains all layers together with a map that sees them, and --schedule "
            f"{options.schedule} trains them one by one: expected --jumping none, or another schedule"
        )
    if options.halo_dtype != "fp32":
        yield (
            f"--halo-dtype {options.halo_dtype} is not for --schedule {options.schedule}, which sends a layer's input "
            "once and keeps it: expected fp32, or another schedule"
        )


def _inputs(of: Selection) -> Iterator[str]:
    """The subgraph of --inductive, inputs that change, and losses of all rows."""
    config, task, schedule = of.config, of.config.task, of.config.schedule.schedule
    exact = schedules_with(lambda traits: traits.exact_epochs)
    if config.data.inductive and of.changing:
        yield (
            f"--inductive trains on training nodes alone, and {of.changing} gives each node of the whole graph "
            "something of its own in training; leave one of them out"
        )
    if config.data.inductive and inputs_of(task.features).edges:
        yield (
            f"--inductive trains without the edges of other nodes, and --features {task.features} is a mean over all "
            "in-edges; leave one of them out"
        )
    if config.data.inductive and not of.schedule.exact_epochs:
        yield f"--inductive is for --schedule {exact}, got {schedule}: expected {exact}, or no --inductive"
    if of.changing and not of.schedule.changing_input:
        yield (
            f"{of.changing} changes the input in every step, and --schedule {schedule} needs an input that does not "
            f"change; expected {schedules_with(lambda traits: traits.changing_input)}"
        )
    if of.changing and config.model.keep_input == "always":
        yield (
            f"--keep-input always keeps an aggregate of features that do not change, got {of.changing}; leave one of "
            "them out"
        )


def _precision(of: Selection) -> Iterator[str]:
    """Formats of numbers."""
    model, options, run = of.config.model, of.config.schedule, of.config.run
    exact = schedules_with(lambda traits: traits.exact_epochs)
    if run.precision != "mixed":
        return
    if not of.layers.mixed_precision:
        yield (
            f"--precision mixed: expected --model {models_with(lambda traits: traits.mixed_precision)}, got "
            f"--model {model.model}; use --precision fp32"
        )
    if model.jumping != "none":
        yield (
            f"--precision mixed: expected --jumping none, got {model.jumping}, whose map sees hidden states in fp32; "
            "use --precision fp32"
        )
    if not (of.schedule.exact_epochs and options.halo_dtype in ("fp32", "bf16")):
        yield (
            f"--precision mixed: expected --schedule {exact}, which then exchanges bf16, got {options.schedule} with "
            f"--halo-dtype {options.halo_dtype}; use --precision fp32"
        )


def _messages(of: Selection) -> Iterator[str]:
    """Options that need messages between two ranks alone."""
    if of.schedule.pairwise and not of.transport.pairwise:
        yield (
            f"--schedule {of.config.schedule.schedule} sends messages between two ranks alone, which --comm "
            f"{of.config.run.comm} cannot: expected --comm mpi or torch"
        )


#: In the order in which they are checked. Packages of `hpcgnn.extras` append theirs.
RULES: list[Callable[[Selection], Iterator[str]]] = [_owners, _layer_by_layer, _inputs, _precision, _messages]
