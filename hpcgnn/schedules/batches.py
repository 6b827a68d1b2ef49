"""More steps in an epoch, all of them exact: full halo × all-reduce, on a share of the training nodes.

An epoch is `--steps` K optimizer steps. Each is on the training nodes of some clusters, with every row that these
depend on, as it is now. Nothing is sampled and nothing is old. Layers before the last compute a row in each step that
needs it: neighbours of training nodes of several shares more than once. Clusters keep these few.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.transforms.pruning import prune
from hpcgnn.graph.transforms.shares import deal
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.schedules.base import Optimizer, Schedule, ScheduleEntry, Stage, Step
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.sar import build_sar
from hpcgnn.schedules.sync import AllreduceEveryStep
from hpcgnn.traits import ScheduleTraits


class StepsOfBatches(AllreduceEveryStep):
    """One stage, with a step for each share of the training nodes in every epoch."""

    def __init__(
        self, local: LocalGraph, halo: FullHalo, comm: Communicator, config: Config, random: Randomness
    ) -> None:
        super().__init__(comm, config.schedule.reduce_dtype)
        self._local, self._halo, self._random = local, halo, random
        cluster = torch.zeros(local.num_owned, dtype=torch.int32) if local.cluster is None else local.cluster
        train = local.mask("train")
        self._dealt, self._count = deal(cluster, config.schedule.steps, random.key(Purpose.SHARE, 0), comm, train)
        self._batches: list[tuple[Graph, torch.Tensor]] = []
        self._plans: list[tuple[tuple[int, int], Any, Any]] = []

    def extend(self, model: Model) -> None:
        """Nothing is added; the model is noted."""
        self._model = model

    def prepare(self, graph: Graph) -> None:
        """Make the batches."""
        train = self._local.mask("train")
        self._batches = [self._batch(graph, train & (self._dealt == number), number) for number in range(self._count)]

    def plans(self) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        """Those of the rows that a batch depends on."""
        yield from self._plans

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[Optimizer]) -> Iterator[Step]:
        """A step for each share."""
        if not self._batches:
            self.prepare(graph)
        key = self._random.key(Purpose.SHARE_ORDER, 0)
        for number in torch.argsort(kernels.random_words(key, torch.arange(self._count), 1)[:, 0]).tolist():
            batch, nodes = self._batches[number]
            yield Step(batch, self._as_whole, nodes=nodes)

    def _as_whole(self, gradients: torch.Tensor) -> None:
        self.reduce(gradients)
        gradients.mul_(self._count)

    def _batch(self, graph: Graph, seen: torch.Tensor, number: int) -> tuple[Graph, torch.Tensor]:
        """The graph of a step, and the own training nodes of its loss. seen: bool (n_p,), these."""
        model, local = self._model, self._local
        what = [1.0] * len(model.convs), model.prunable_layers, model.spec.keeps_input
        parts = prune(local, *what, self._comm, seen)
        views = {
            layer: (part, self._halo if part.inward is local.inward else self._halo.restricted(part))
            for layer, part in enumerate(parts)
            if part is not None
        }
        own = ((layer, part) for layer, (part, _) in views.items() if part.inward is not local.inward)
        self._plans += [((layer, number), part.inward.plan, part.outward.plan) for layer, part in own]
        return graph.pruned(views), torch.nonzero(seen).squeeze(1)


def build_batches(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """Full halo, all-reduce at every step; one step per epoch is `sar`."""
    if config.schedule.steps == 1:
        return build_sar(local, comm, buffers, config, random)
    halo = FullHalo(local, comm, buffers)
    return Schedule(halo, StepsOfBatches(local, halo, comm, config, random))


SCHEDULE = ScheduleEntry(
    build_batches, ScheduleTraits(by_shares=True, last_rows_alone=True, whole_steps=True, sums_gradients=True)
)
