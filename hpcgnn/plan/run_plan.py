"""The plan of a run: all decisions that follow from the configuration and the graph's metadata.

train, evaluate, predict, dry runs and estimates read it and decide nothing again. `plan` is a pure function: a plan, or
one line of refusal.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from hpcgnn.comm.session import TRANSPORTS
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.row_codec import rounds_at_random
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import PLAIN, ModelSpec
from hpcgnn.options.inputs import Inputs, inputs_of, made_flags
from hpcgnn.plan.model_spec import model_spec
from hpcgnn.plan.rules import PLAN_RULES, RULES, TRAINING_RULES, Rule
from hpcgnn.registry import Registry
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.tasks.registry import resolve_task, task_traits
from hpcgnn.traits import LayerTraits, ScheduleTraits, TaskTraits, TransportTraits

#: Types that float32 has all numbers of, by their names in a file.
_NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
#: Ranks of a node from which --intra-node auto may read rows in place between nodes (docs/schedules-measured.md).
MANY_RANKS = 4
#: needs(config) of extras: whether ranks of a node cannot read each other's rows in place.
NEEDS_MESSAGES: list[Callable[[Config], bool]] = []
#: Of extras: make(config) -> None, or what an estimate shows beside the rest: an object with values of each number of
#: ranks under its `name`, `values(Forecast, Place)`, and the lines below the table for people, `lines(all rows)`.
ESTIMATED: Registry[Callable[[Config], Any]] = Registry("addition to an estimate")


@dataclass(frozen=True)
class RunPlan:
    """The decisions of a run, with the entries and traits of its model, schedule, task and transport.

    Attributes:
        config: the configuration; of a graph, with the task, the metric, the loss and the self loops decided.
        spec: the ModelSpec; PLAIN until the graph is known.
    """

    config: Config
    spec: ModelSpec = PLAIN

    @property
    def model(self) -> ModelEntry:
        return MODELS[self.config.model.model]

    @property
    def layers(self) -> LayerTraits:
        """The traits of the model's layers, as far as the configuration alone decides."""
        return self.model.traits()

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

    @property
    def prunes(self) -> bool:
        """Whether layers may compute some of their rows only in training (graph/transforms/pruning.py)."""
        options = self.config.schedule
        # Random rounding draws by the row numbers of the whole share.
        apart = options.prune == "auto" and not rounds_at_random(options.halo_dtype)
        return apart and self.schedule.exact_epochs and not self.task.all_rows

    @property
    def takes_sums(self) -> bool:
        """Whether ranks may send sums of rows in place of rows (graph/transforms/vertex_cover.py).

        Layers must make only sums with fixed factors of rows of others, and the schedule must need no single row.
        """
        spec = self.spec
        dense = not (spec.sparse_input or spec.drops_rows)
        allowed = {"always": True, "dense": dense, "never": False}[self.schedule.partial_sums]
        # A loss of all rows reads single rows of sources, and other edges would change the terms of a sum.
        return allowed and not self.task.all_rows and spec.same_edges and self.layers.fixed_sums

    @property
    def halo(self) -> str:
        """The value of --halo that takes effect: 'rows' where ranks may not send sums."""
        return self.config.schedule.halo if self.takes_sums else "rows"

    @property
    def reads_edges(self) -> bool:
        """Whether layers read features of edges."""
        return self.model.reads_edges(self.spec)

    @property
    def returns(self) -> bool:
        """Whether anything returns to the rows along the edges, as under attention."""
        return not self.layers.fixed_sums

    @property
    def narrows(self) -> bool:
        """Whether rows are narrowed on their way."""
        return self.config.schedule.halo_dtype != "fp32" or self.config.run.precision == "mixed"

    @property
    def in_place(self) -> bool:
        """Whether ranks of a node read each other's rows in place."""
        return self.config.schedule.intra_node == "shared"

    @property
    def may_read_in_place(self) -> bool:
        """Whether they do if that saves enough between nodes (--intra-node auto): see `deciding`."""
        return self.config.schedule.intra_node == "auto"

    @property
    def can_read_in_place(self) -> bool:
        """Whether ranks of a node can read each other's rows in place (--intra-node shared).

        Layer by layer, this holds if nothing of single rows is kept.
        """
        serves = self.schedule.exact_epochs or (self.schedule.layer_by_layer and self.takes_sums)
        plain = not self.task.all_rows and self.spec.same_edges and self.config.model.keep == "exact"
        plain = plain and not any(needs(self.config) for needs in NEEDS_MESSAGES)
        return serves and plain and self.transport.node_memory

    @property
    def reads_in_tiles(self) -> bool:
        """Whether the first layer reads its constant inputs in order, some rows at a time."""
        spec, layer, schedule = self.spec, self.layers, self.schedule
        if spec.sparse_input or spec.changing or not schedule.within_memory:
            return False
        if not spec.constant_input:  # layer by layer, a copy of the halo stays in memory with the own rows
            return layer.input == "tiles" and not schedule.layer_by_layer and not spec.edge_features
        return layer.neighbours == "sums" and (spec.keeps_input or (schedule.layer_by_layer and not spec.drops_rows))

    @property
    def multiplies_input(self) -> bool:
        """Whether the first layer multiplies its constant inputs with its weights, and sums no rows of them: it reads
        them some rows at a time, but in no order.
        """
        spec, layer, schedule = self.spec, self.layers, self.schedule
        if spec.sparse_input or spec.changing or spec.keeps_input or spec.node_types:
            return False
        if not schedule.within_memory or schedule.layer_by_layer:
            return False
        if spec.constant_input:
            return layer.input != "rows" and spec.d_in > spec.first_width
        return layer.input == "product"

    def held_type(self, meta: GraphMeta) -> torch.dtype | None:
        """The type of the features in memory where it is the file's own, narrower one; else None."""
        fits = inputs_of(self.spec.inputs) == Inputs() and self.spec.dtype == torch.float32
        in_tiles = self.reads_in_tiles and (self.spec.constant_input or not self.spec.node_types)
        return _NARROW.get(meta.feature_type) if fits and (in_tiles or self.multiplies_input) else None

    def changed(self, **options: Any) -> "RunPlan":
        """The plan of the same model with other options, by their flat names."""
        return replace(self, config=self.config.replace(**options))

    def deciding(self, in_place: bool) -> "RunPlan":
        """The same plan, where --intra-node auto has come to a decision; any other plan as it is."""
        if not self.may_read_in_place:
            return self
        return self.changed(intra_node="shared" if in_place else "messages")


def rows_in_place_pay(ranks_on_node: int, ranks: int) -> bool:
    """Whether --intra-node auto may read rows in place. ranks_on_node: of the node with most; ranks: of all nodes."""
    return ranks_on_node > 1 and (ranks_on_node == ranks or ranks_on_node >= MANY_RANKS)


def check(decided: RunPlan, rules: Iterable[Rule]) -> None:
    """Raise ConfigError, on all ranks, for the first rule that a plan breaks."""
    for rule in rules:
        for refusal in rule(decided):
            raise ConfigError.on_all(refusal)


def check_options(config: Config) -> None:
    """Raise ConfigError for options that do not go together. No graph is needed: it runs as soon as options are read,
    on the login node as well as in a job.
    """
    decided = RunPlan(config)
    check(decided, RULES)
    decided.entry.check(config, config.model.layers if decided.model.stacked else 1)


def plan(config: Config, meta: GraphMeta, learns: bool = True) -> RunPlan:
    """The plan of a run on a graph.

    Args:
        config: the configuration as the user gave it.
        meta: metadata of the graph file.
        learns: whether anything is trained. Without, options of training alone are not checked.

    Raises:
        ConfigError, GraphError: one line of refusal. They are the same on all ranks that call alike.
    """
    decided = RunPlan(config, model_spec(meta, config))
    spec, loops = replace(decided.spec, held=decided.held_type(meta)), config.data.self_loops
    decided = RunPlan(resolve_task(config, meta), spec)
    decided = decided.changed(self_loops=decided.layers.self_loops if loops == "auto" else loops)
    if decided.may_read_in_place and not decided.can_read_in_place:
        decided = decided.deciding(False)
    if learns:
        decided.entry.check_graph(decided.config, meta, spec)
    check(decided, (*(TRAINING_RULES if learns else ()), *PLAN_RULES))
    return decided
