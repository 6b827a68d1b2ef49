"""The plan of a run: all decisions that follow from the configuration, the graph's metadata and the number of ranks.

train, evaluate, predict, dry runs and estimates read it and decide nothing again. `plan` is a pure function: a plan, or
one line of refusal.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hpcgnn.config import Config
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.plan.halo import check_halo, features_travel, halo_of, intra_node_of, prunes
from hpcgnn.plan.held import check_aggregate, check_keep, held_type
from hpcgnn.plan.model_spec import model_spec
from hpcgnn.plan.privacy import check_privacy
from hpcgnn.plan.rules import Selection
from hpcgnn.tasks.registry import resolve_task, task_traits
from hpcgnn.traits import ScheduleTraits, TaskTraits


@dataclass(frozen=True)
class RunPlan:
    """The decisions of a run.

    Attributes:
        config: the configuration, with the task, the metric, the loss and the self loops decided.
        spec: the ModelSpec.
        halo: 'rows', 'auto' (sums where they are fewer) or 'least'.
        sends_features: rows of the features themselves are exchanged, as sums where these are fewer.
        prunes: layers may compute some of their rows only in training.
        in_place: ranks of a node read each other's rows in place.
        may_read_in_place: they do if that saves enough between nodes (--intra-node auto): see `deciding`.
        reads_edges: layers read features of edges.
    """

    config: Config
    spec: ModelSpec
    halo: str
    sends_features: bool
    prunes: bool
    in_place: bool
    may_read_in_place: bool
    reads_edges: bool

    @classmethod
    def of(cls, config: Config, spec: ModelSpec) -> "RunPlan":
        """The plan of a resolved configuration and its ModelSpec."""
        return cls(
            config=config,
            spec=spec,
            halo=halo_of(config, spec),
            sends_features=features_travel(config, spec),
            prunes=prunes(config),
            in_place=config.schedule.intra_node == "shared",
            may_read_in_place=config.schedule.intra_node == "auto",
            reads_edges=MODELS[spec.model].reads_edges(spec),
        )

    @property
    def returns(self) -> bool:
        """Whether anything returns to the rows along the edges, as under attention."""
        return not MODELS[self.spec.model].traits(self.spec).fixed_sums

    @property
    def narrows(self) -> bool:
        """Whether rows are narrowed on their way."""
        return self.config.schedule.halo_dtype != "fp32" or self.config.run.precision == "mixed"

    def on(self, partition: str, threads: int) -> "RunPlan":
        """The same plan with the name of the stored map ('': one that is made for the run) and the threads."""
        partition = partition or self.config.data.partition
        return replace(self, config=self.config.replace(partition=partition, threads=threads))

    def changed(self, **options: Any) -> "RunPlan":
        """The plan of the same model with other options, by their flat names."""
        return RunPlan.of(self.config.replace(**options), self.spec)

    def deciding(self, in_place: bool) -> "RunPlan":
        """The same plan, where --intra-node auto has come to a decision; any other plan as it is."""
        if not self.may_read_in_place:
            return self
        return self.changed(intra_node="shared" if in_place else "messages")

    @property
    def schedule(self) -> ScheduleTraits:
        """The traits of the schedule."""
        return Selection(self.config).schedule

    @property
    def task(self) -> TaskTraits:
        """The traits of the task."""
        return task_traits(self.config.task.task)


#: check(config, spec) of extras: raises ConfigError where nothing can be trained so.
TRAINING_CHECKS: list[Callable[[Config, ModelSpec], None]] = []


def plan(config: Config, meta: GraphMeta, ranks: int, learns: bool = True) -> RunPlan:
    """The plan of a run on a graph.

    Args:
        config: the configuration as the user gave it.
        meta: metadata of the graph file.
        ranks: number of ranks P.
        learns: whether anything is trained. Without, options of training alone are not checked.

    Raises:
        ConfigError, GraphError: one line of refusal. They are the same on all ranks that call alike.
    """
    spec = model_spec(meta, config)
    check_aggregate(config, spec)
    spec = replace(spec, held=held_type(meta, config, spec))
    wanted = config.data.self_loops
    config = resolve_task(config, meta)
    config = config.replace(
        self_loops=MODELS[spec.model].traits(spec).self_loops if wanted == "auto" else wanted,
        intra_node=intra_node_of(config, spec),
    )
    if learns:
        check_keep(config, spec)
        check_privacy(config, spec)
        Selection(config).entry.check_graph(config, meta, spec)
        for check in TRAINING_CHECKS:
            check(config, spec)
    check_halo(config, spec)
    return RunPlan.of(config, spec)
