"""Training of a number of steps on some of a job's ranks, and its measurements."""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import torch

from hpcgnn.app.bring_up import bring_up
from hpcgnn.app.graph_checks import check_weights
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.epochs import costs_of_epoch
from hpcgnn.engine.hooks import Plugin
from hpcgnn.engine.summary import partition_quality
from hpcgnn.engine.trainer import Trainer
from hpcgnn.errors import HpcgnnError
from hpcgnn.extras.certify.command import Shape
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.memory.resident import trim_heap
from hpcgnn.plugins.registry import make_plugins

#: {name: tensor} of a model's state.
Start = dict[str, torch.Tensor]


@dataclass(frozen=True)
class CertifiedRun:
    """The measurements of a shape, on rank 0.

    Attributes:
        config: the run's configuration, resolved.
        graph_uuid: the graph's.
        losses: of each step.
        gradients: float64 (total,) of all parameters, of the first and of the last step of the optimizer.
        parameters: float64 (total,), after the last step.
        metrics: {split: the metric after the last step}.
        counted: {split: number of objects} of a metric that counts objects; {} for one of errors.
        sent: {'bytes', 'messages'}: {kind: number that all ranks sent in the last step}.
        quality: see `partition_quality`.
    """

    shape: Shape
    config: Config
    graph_uuid: str
    losses: list[float]
    gradients: tuple[torch.Tensor, torch.Tensor]
    parameters: torch.Tensor
    metrics: dict[str, float]
    counted: dict[str, int]
    sent: dict[str, dict[str, int]]
    quality: dict[str, Any]


class GradientCopies(Plugin):
    """Copies the gradients of the first and of the last step, before they are clipped. kept: [first, last]."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self.kept = trainer, list[torch.Tensor]()

    def gradient_square(self) -> None:
        self.kept[1:] = [self._trainer.gradients.flat.to(torch.float64, copy=True)]


@contextlib.contextmanager
def session_of(session: Session, ranks: int) -> Iterator[Session | None]:
    """A session of the first ranks alone; None on the others. Collective over all; an error of the body reaches all."""
    comm, failure = session.comm, None
    if ranks == comm.size:
        yield session
        return
    part = comm.first(ranks)
    try:
        if part is None:
            yield None
        else:
            own = copy.copy(session)
            own.comm, memory = part, part.node_memory()
            if memory is not None:
                own.ranks_on_node, own.node = len(memory.ranks), min(memory.ranks)
            yield own
    except HpcgnnError as error:
        if not error.everywhere:
            raise
        failure = error
    if part is not None:
        part.close()
    comm.rest()
    with comm.together("certifying", on_one=True):
        if failure is not None:
            raise failure


def measure(
    config: Config, session: Session, shape: Shape, steps: int, start: Start | None = None
) -> CertifiedRun | None:
    """Train on the first ranks; the result is on rank 0. Collective over all.

    start: the model's state at the beginning, in any precision; an empty one is filled with the run's own.
    """
    found = None
    with session_of(session, shape.ranks) as own:
        if own is not None:
            found = _measure(config.replace(replicas=shape.replicas), own, shape, steps, start)
    trim_heap()
    return found


def _measure(config: Config, session: Session, shape: Shape, steps: int, start: Start | None) -> CertifiedRun | None:
    comm = session.comm
    with bring_up(config, session) as ready:
        local = ready.load()
        check_weights(local, ready.plan.spec, comm)
        quality = partition_quality(local, ready.graph.map_name, comm)
        trainer = Trainer(local, ready.plan_on(local), comm, ready.buffers, make_plugins)
        del local
        if start:  # a layer of torch's draws other numbers in another precision
            trainer.model.load_state_dict(start)
        elif start is not None:
            start |= {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
        ready.memory.begin(trainer)
        return _train(trainer, shape, steps, quality, ready.graph.file.meta.uuid)


def _train(trainer: Trainer, shape: Shape, steps: int, quality: dict[str, Any], uuid: str) -> CertifiedRun | None:
    copies, losses, costs, config = GradientCopies(trainer), list[float](), dict[str, Any](), trainer.plan.config
    trainer.plugins.append(copies)
    with trainer.plugins.around(lambda each: each.run(trainer)):
        trainer.schedule.sync.prepare(trainer.training_graph)
        for epoch in range(steps):
            with trainer.plugins.around(methodcaller("epoch", epoch + 1)):
                losses.append(trainer.step(epoch))
                for plugin in trainer.plugins:
                    plugin.end_epoch()
                costs = costs_of_epoch(trainer)[0]
        scores = trainer.evaluate() if config.run.eval_every else {}
    if trainer.comm.rank:
        return None
    evaluator = trainer.evaluator
    metrics = {name: scores[name] for name in SPLITS if name in scores and scores[name] == scores[name]}
    return CertifiedRun(
        shape,
        config,
        uuid,
        losses,
        (copies.kept[0], copies.kept[-1]),
        torch.cat([each.detach().double().flatten() for each in trainer.model.parameters()]),
        metrics,
        {} if evaluator.metric.lower else {name: evaluator.counts[name] for name in metrics},
        {name: {kind: each["sum"] for kind, each in costs[name].items()} for name in ("bytes", "messages")},
        quality,
    )
