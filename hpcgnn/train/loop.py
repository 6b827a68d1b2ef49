"""The one training step and the one epoch loop. Both know neither the schedule nor the model nor MPI."""

import torch

from hpcgnn.errors import TrainingError
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import initialise
from hpcgnn.nn.registry import MODELS
from hpcgnn.ops.randomness import Randomness
from hpcgnn.schedules.registry import SCHEDULES
from hpcgnn.train.clock import Clock, unwatched
from hpcgnn.train.diagnosis import first_not_finite
from hpcgnn.train.evaluate import Evaluator
from hpcgnn.train.gradients import FlatGradients
from hpcgnn.train.objective import Objective
from hpcgnn.train.optim import build_optimizer, learning_rate, set_learning_rate


class Trainer:
    """Model, optimizer and schedule over one rank's share of a graph. Made and used collectively.

    local: LocalGraph; spec: ModelSpec; config: Config; buffers: HaloBuffers; watch: told of the phases (see clock.py).
    """

    def __init__(self, local, spec, config, comm, buffers, watch=unwatched):
        self.comm, self.clock, self.options, self.buffers = comm, Clock(watch, comm.pulse), config.optim, buffers
        self.random = Randomness(config.run.seed)
        self.schedule = SCHEDULES[config.schedule.schedule](local, comm, buffers)
        self.constants = {}
        self.graph = Graph(local, self.schedule.halo, comm.total, self.random, self._constant, buffers.arena)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.run.seed)  # for layers that start as torch has it: the same on all ranks
            self.model = MODELS[spec.model].build(spec)
        initialise(self.model, self.random)
        self.gradients = FlatGradients(self.model.parameters())
        self.optimizer = build_optimizer(self.model, config.optim)
        self.objective = Objective(local, comm, buffers.arena)
        self.evaluator = Evaluator(local, config.run.metric, comm)

    def step(self, epoch):
        """One full-batch step; returns the mean loss over all training nodes. Collective."""
        self.random.epoch = epoch
        self.schedule.halo.begin_epoch(epoch)
        set_learning_rate(self.optimizer, learning_rate(epoch, self.options))
        self.gradients.zero()
        with self.clock("forward"):
            loss = self.objective.local_loss(self.model(self.graph))
        with self.clock("backward"):
            loss.backward()
        with self.clock("reduction"):
            self.schedule.sync.reduce(self.gradients.flat)
        total = self._total_loss(loss.detach(), epoch)  # before the step, so that what failed can be seen once more
        with self.clock("step"):
            self.gradients.clip(self.options.clip_norm)
            self.optimizer.step()
        return total

    def evaluate(self):
        """{'train', 'val', 'test'}: the metric of each split. Collective."""
        with self.clock("evaluation"):
            return self.evaluator(self.model, self.graph)

    def _constant(self, name, compute):
        """A value of this run that never changes: computed at first use (traffic booked as `input`), then kept."""
        if name not in self.constants:
            with torch.no_grad(), self.comm.ledger.booked_as("input"):
                self.constants[name] = compute()
        return self.constants[name]

    def _total_loss(self, local_loss, epoch):
        """The sum of the ranks' shares in float64. Raises TrainingError on all ranks if it is not finite."""
        bad = [0.0] * self.comm.size
        bad[self.comm.rank] = float(not torch.isfinite(local_loss))
        totals = self.comm.total(torch.tensor([float(local_loss), *bad], dtype=torch.float64))
        if totals[1:].any():
            ranks = ", ".join(str(rank) for rank in torch.nonzero(totals[1:]).flatten().tolist())
            where = first_not_finite(self.model, self.graph, self.comm)
            error = TrainingError(
                f"the loss is not finite in epoch {epoch} on rank {ranks}: {where}; expected a finite loss. Lower --lr, set "
                "--clip-norm, or look for extreme features; the last checkpoint is kept"
            )
            error.everywhere = True
            raise error
        return float(totals[0])
