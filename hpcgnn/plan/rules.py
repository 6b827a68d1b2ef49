"""Which options go together, by the traits of the model, the schedule, the task and the transport.

A rule is a generator of refusals of a RunPlan: each condition stands beside the line that a user reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from hpcgnn.nn.registry import MODELS
from hpcgnn.option_fields import allowed, flag
from hpcgnn.options.inputs import inputs_of
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.traits import LayerTraits, ScheduleTraits

if TYPE_CHECKING:
    from hpcgnn.plan.run_plan import RunPlan

Rule = Callable[["RunPlan"], Iterator[str]]


def schedules_with(allows: Callable[[ScheduleTraits], bool]) -> str:
    """The names of the schedules whose traits allow something, for a message."""
    return " or ".join(name for name, entry in SCHEDULES.items() if allows(entry.traits))


def models_with(allows: Callable[[LayerTraits], bool]) -> str:
    """The names of the models whose layers' traits allow something with the usual options, for a message."""
    names = [name for name, entry in MODELS.items() if allows(entry.traits())]
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)


def _owners(of: "RunPlan") -> Iterator[str]:
    """Options of another schedule than the chosen one."""
    options, traits = of.config.schedule, {name: entry.traits for name, entry in SCHEDULES.items()}
    for declared in fields(options):
        owners = allowed(declared.metadata["schedules"], traits) or (options.schedule,)
        if options.schedule not in owners and getattr(options, declared.name) != declared.default:
            yield (
                f"{flag(declared.name)} belongs to --schedule {owners[0]}, got --schedule "
                f"{options.schedule}; leave it out, or choose that schedule"
            )


def _layer_by_layer(of: "RunPlan") -> Iterator[str]:
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


def _inputs(of: "RunPlan") -> Iterator[str]:
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


def _precision(of: "RunPlan") -> Iterator[str]:
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


def _messages(of: "RunPlan") -> Iterator[str]:
    """Options that need messages between two ranks alone."""
    if of.schedule.pairwise and not of.transport.pairwise:
        yield (
            f"--schedule {of.config.schedule.schedule} sends messages between two ranks alone, which --comm "
            f"{of.config.run.comm} cannot: expected --comm mpi or torch"
        )


def _halo(of: "RunPlan") -> Iterator[str]:
    """Sums that ranks may not send, and rows that cannot be read in place."""
    options, model = of.config.schedule, of.config.model.model
    if of.in_place and not of.can_read_in_place:
        yield (
            "--intra-node shared: expected --comm mpi, and --schedule sar, or lazy with a model that keeps sums; "
            "the same edges in all epochs, no --memory, only --keep exact, a task of "
            f"labels; got --comm {of.config.run.comm}, --schedule {options.schedule}, --model {model}; use "
            "--intra-node messages"
        )
    if options.halo == "least" and not of.takes_sums:
        yield (
            f"--halo least: --model {model} with --schedule {options.schedule} needs the rows of "
            "neighbours one by one; expected gcn, sage, gin or sgc; --schedule "
            f"{schedules_with(lambda traits: traits.partial_sums == 'always')}, or "
            f"{schedules_with(lambda traits: traits.partial_sums == 'dense')} with dense features and without "
            "--input-dropout raw; the same edges in all epochs; and a task of labels; use --halo auto, which sends "
            "sums where it can"
        )


def _keep(of: "RunPlan") -> Iterator[str]:
    """Rounded activations whose gradients would not be right in the mean."""
    config, model = of.config, of.config.model
    able = of.layers.codes and not of.spec.edge_features and model.jumping != "max" and config.run.precision != "mixed"
    if model.keep != "exact" and not (able and of.schedule.exact_epochs):
        yield (
            "--keep int8: expected --model gcn, sage, gin, or gat, gatv2 or transformer without "
            "features of edges, no --jumping max, --precision fp32 or fp64, and --schedule sar; "
            f"got --model {model.model}, --jumping {model.jumping}, "
            f"--precision {config.run.precision}, --schedule {config.schedule.schedule}; use --keep exact"
        )


def _counted(of: "RunPlan") -> Iterator[str]:
    """The subgraph of --inductive."""
    if of.config.data.inductive:
        yield (
            "estimate counts no subgraph of --inductive; expected no --inductive, or a run of a few epochs, whose "
            "summary.json has its messages and memory"
        )


#: Rules about options alone, in the order in which they are checked; about a graph's plan; about one that trains; about
#: messages that `hpcgnn estimate` does not count. Packages of extras append theirs.
RULES: list[Rule] = [_owners, _layer_by_layer, _inputs, _precision, _messages]
PLAN_RULES: list[Rule] = [_halo]
TRAINING_RULES: list[Rule] = [_keep]
COUNTING_RULES: list[Rule] = [_counted]
