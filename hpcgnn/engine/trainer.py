"""The one training step. It knows neither the schedule nor the model nor the transport nor any plugin."""

import math
from collections.abc import Callable
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.engine.clock import Clock, Watch, unwatched
from hpcgnn.engine.finite import check_finite
from hpcgnn.engine.hooks import Plugins
from hpcgnn.engine.optim import FlatGradients, Optimizer, build_optimizer, learning_rate
from hpcgnn.engine.views import Constants, make_views
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.nn.linear import initialise
from hpcgnn.nn.registry import MODELS
from hpcgnn.ops.draws import Randomness, torch_seed
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import Step
from hpcgnn.schedules.schedule_registry import SCHEDULES
from hpcgnn.tasks.base import Setting
from hpcgnn.tasks.registry import TASKS


class Trainer:
    """Model, optimizer and schedule over one rank's share of a graph. Made and used collectively.

    Attributes:
        plan: the run's decisions; its configuration is resolved.
        local: the rank's share in training, which may send sums of rows.
        views: the parts of the share for evaluation and training.
        graph, training_graph: the Graph of evaluation, and of training.
        stages, stage: the OptimConfig of each stage, and the present Stage.
        objective, evaluator: the loss (only if the run trains), and the metrics.
    """

    def __init__(
        self,
        local: LocalGraph,
        plan: RunPlan,
        comm: Communicator,
        buffers: HaloBuffers,
        make_plugins: Callable[["Trainer", bool], Plugins],
        watch: Watch = unwatched,
        learns: bool = True,
        adapt: Callable[[Any], object] = lambda model: None,
    ) -> None:
        """make_plugins: makes the optional behaviour (plugins/registry.py). watch: gets the phases (clock.py).
        learns: whether anything is trained; if not, the graph needs no labels. adapt: changes the new model, of an
        estimate.
        """
        config, self.comm, self.buffers = plan.config, comm, buffers
        task = TASKS[config.task.task]
        self.clock, self.random = Clock(watch, comm.heartbeat), Randomness(config.run.seed)
        self.constants = Constants(comm.ledger)
        with torch_seed(config.run.seed):
            self.model = MODELS[plan.spec.options.model].build(plan.spec)
        adapt(self.model)
        self.views = make_views(local, plan, self.model, comm, buffers, learns)
        if self.views.in_place is not None:
            self.constants.trims.append(self.views.in_place.trim)
        self.local, self.plan = self.views.local, plan.deciding(self.views.in_place is not None)
        trained_on, schedule = self.views.trained_on, SCHEDULES[config.schedule.schedule]
        self.schedule = schedule.build(trained_on, comm, buffers, config, self.random)
        with torch_seed(config.run.seed):
            self.schedule.sync.extend(self.model)
            task.prepare_model(self.model, plan.spec, config)
        initialise(self.model, self.random)
        self.plugins = make_plugins(self, learns)
        changing = [each.columns for each in self.plugins if each.columns is not None]
        verbs = self.schedule.halo, comm, self.random, self.constants, buffers
        self.graph, self.training_graph = self.views.graphs(*verbs, changing)
        self.stages = self.schedule.sync.plan(config.optim)
        self.begin_stage(0, 0)
        setting = Setting(self.model, self.local, trained_on, self.graph, comm, buffers, self.random, config)
        self.evaluator, objective = task.judges(setting, learns)
        if objective is not None:
            self.objective = objective

    def begin_stage(self, index: int, epoch: int) -> None:
        """Train stage number `index` of the schedule from `epoch` on, with fresh optimizers."""
        self.model.zero_grad(set_to_none=True)
        options, self.stage_begun = self.stages[index], epoch
        self.stage = self.schedule.sync.stage(index, options, self.model, self.graph)
        self.gradients = FlatGradients(self.stage.module)
        self.optimizers = [build_optimizer(self.stage.module, options) for _ in range(self.stage.optimizers)]
        self.optimizer = self.optimizers[0]

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch of the present stage."""
        return learning_rate(epoch - self.stage_begun, self.stage.options)

    def step(self, epoch: int) -> float:
        """Run one epoch of the present stage, with the steps of the schedule and of the task. Returns the mean loss in
        the last step, or in all steps, where each has a share of it. Collective.
        """
        self.random.epoch = epoch
        self.schedule.halo.begin_epoch(epoch)
        for optimizer in self.optimizers:
            optimizer.set_learning_rate(self.learning_rate(epoch))
        total, finite, moved = torch.zeros(()), True, True
        steps = self.schedule.sync.steps(epoch, self.stage, self.training_graph, self.optimizers)
        steps = self.objective.steps(steps)
        for each in self.clock.between("reduction", steps):  # the schedule's own time counts as reduction
            if moved:
                self.gradients.zero()
            loss = self.local_loss(each, epoch)
            with self.clock("backward"):
                loss.backward()
            total, moved = total + each.share * loss.detach() if each.share else loss.detach(), each.moves
            if not moved:
                continue
            with self.clock("reduction"):
                each.reduce(self.gradients.flat)
            with self.clock("step"):
                if finite:  # after a step that fails nothing moves
                    finite = self._move(self.optimizers[each.optimizer])
        return check_finite(self.comm, float(total), finite, epoch)

    def local_loss(self, step: Step, epoch: int) -> torch.Tensor:
        """This rank's share of the loss of a step: its forward pass, with its draws. Collective, as the step is."""
        self.random.epoch = epoch | step.number << 32
        for plugin in self.plugins:
            plugin.before_step()
        with self.clock("forward"), self.plugins.around(lambda each: each.forward()):
            return self.objective.of_step(self.stage.module, step)

    def _move(self, optimizer: Optimizer) -> bool:
        """Step with an optimizer. False, and nothing moves, if a gradient is not finite. Collective."""
        squares = [square for each in self.plugins if (square := each.gradient_square()) is not None]
        own = float(self.comm.total(torch.stack(squares).sum(0))) if squares else 0.0
        if not (self.gradients.finite() and math.isfinite(own)):
            return False
        factor = self.gradients.clip(self.stage.options.clip_norm, own)
        optimizer.step()
        for plugin in self.plugins:
            plugin.after_step(factor)
        return True

    def evaluate(self) -> dict[str, Any]:
        """Return {'train', 'val', 'test'}: the metric of each split, and the task's tables. Collective."""
        with self.clock("evaluation"), self.plugins.around(lambda each: each.evaluation()):
            return self.evaluator(self.stage.module, self.graph)

    def evaluated_state(self) -> dict[str, torch.Tensor]:
        """A copy of the state of the model as it is evaluated."""
        with self.plugins.around(lambda each: each.evaluation()):
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
