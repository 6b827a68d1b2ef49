"""The loss and the metrics of a plan's task, and the task's own parameters in the model."""

from typing import TYPE_CHECKING, Any

from hpcgnn.graphfile.labels import REGRESSION
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.base import TARGETS, Scale
from hpcgnn.tasks.evaluator import Evaluator
from hpcgnn.tasks.link_training import LinkEvaluator, LinkObjective, add_scorer
from hpcgnn.tasks.objective import Objective
from hpcgnn.tasks.regression import scale_of

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

AnyEvaluator = Evaluator | LinkEvaluator
AnyObjective = Objective | LinkObjective


def prepare_model(model: Any, plan: RunPlan) -> None:
    """Add the task's own parameters to a new model."""
    if not plan.task.labels:
        add_scorer(model, plan.spec, plan.config)


def make_judges(trainer: "Trainer", learns: bool) -> tuple[AnyEvaluator, AnyObjective | None]:
    """(the evaluator, the objective or None if nothing is learned). Collective."""
    local, comm, config = trainer.local, trainer.comm, trainer.plan.config
    if not trainer.plan.task.labels:
        evaluator = LinkEvaluator(trainer.model, local, comm, trainer.buffers, config)
        verbs = trainer.model, trainer.graph, comm, trainer.random, config
        return evaluator, LinkObjective(*verbs) if learns else None
    scale = _scale(trainer, learns)
    judge = Evaluator(local, config.run.metric, comm, scale)
    if not learns:
        return judge, None
    return judge, Objective(trainer.views.trained_on, comm, trainer.buffers.arena, config.task, scale)


def _scale(trainer: "Trainer", learns: bool) -> Scale | None:
    """The Scale of real-valued targets, made a part of the model; None where there is none. Where nothing is learned a
    checkpoint brings its numbers. Collective.
    """
    local = trainer.local
    if local.task != REGRESSION or trainer.plan.config.task.target_scale == "none":
        return None
    known = scale_of(local.labels[local.mask("train")], trainer.comm) if learns else None
    scale = Scale.blank(local.num_classes) if known is None else known
    trainer.model.add_module(TARGETS, scale)
    return scale
