"""What each task adds to a model, and how it judges it: the loss, the metrics, the task's own parameters."""

from dataclasses import dataclass
from typing import Protocol

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Randomness
from hpcgnn.registry import Registry
from hpcgnn.tasks.base import TARGETS, Scale, Task
from hpcgnn.tasks.evaluator import Evaluator
from hpcgnn.tasks.link_training import LinkEvaluator, LinkObjective, add_scorer
from hpcgnn.tasks.objective import Objective
from hpcgnn.tasks.registry import TASKS
from hpcgnn.tasks.regression import scale_of


@dataclass(frozen=True)
class Setting:
    """What losses and metrics are made from: the model, this rank's share, and its part that training sees."""

    model: torch.nn.Module
    local: LocalGraph
    trained_on: LocalGraph
    graph: Graph
    comm: Communicator
    buffers: HaloBuffers
    random: Randomness
    config: Config


Judges = tuple[Evaluator | LinkEvaluator, Objective | LinkObjective | None]


class Training(Protocol):
    """How a task is learned."""

    def prepare_model(self, model: torch.nn.Module, spec: ModelSpec, config: Config) -> None:
        """Add the task's own parameters to a new model."""

    def judges(self, on: Setting, learns: bool) -> Judges:
        """(the evaluator, the objective or None if nothing is learned). Collective."""


class LabelTraining(Training):
    """The mean loss over training nodes, and metrics of the nodes of each split."""

    def prepare_model(self, model: torch.nn.Module, spec: ModelSpec, config: Config) -> None: ...

    def judges(self, on: Setting, learns: bool) -> Judges:
        config, scale = on.config, _scale(on, learns)
        evaluator = Evaluator(on.local, config.run.metric, on.comm, scale, config.task.task)
        if not learns:
            return evaluator, None
        return evaluator, Objective(on.trained_on, on.comm, on.buffers.arena, config.task, scale)


class LinkTraining(Training):
    """Losses and ranks of edges against drawn pairs."""

    def prepare_model(self, model: torch.nn.Module, spec: ModelSpec, config: Config) -> None:
        add_scorer(model, spec, config)

    def judges(self, on: Setting, learns: bool) -> Judges:
        model, comm, config = on.model, on.comm, on.config
        evaluator = LinkEvaluator(model, on.local, comm, on.buffers, config)
        return evaluator, LinkObjective(model, on.graph, comm, on.random, config) if learns else None


#: How each task of TASKS is learned.
TRAINING: Registry[Training] = Registry("task")
for _name, _task in TASKS.items():
    TRAINING.register(_name, LabelTraining() if _task.traits.labels else LinkTraining())


def register(task: Task, training: Training = LabelTraining()) -> None:
    """Offer a task as `--task NAME`. Raises ValueError for a name that is taken."""
    TASKS.register(task.name, task)
    TRAINING.register(task.name, training)


def _scale(on: Setting, learns: bool) -> Scale | None:
    """The Scale of real-valued targets, made a part of the model; None where there is none. Where nothing is learned a
    checkpoint brings its numbers. Collective.
    """
    local = on.local
    if local.task != REGRESSION or on.config.task.target_scale == "none":
        return None
    known = scale_of(local.labels[local.mask("train")], on.comm) if learns else None
    scale = Scale.blank(local.num_classes) if known is None else known
    on.model.add_module(TARGETS, scale)
    return scale
