"""More steps in an epoch, all of them exact: full halo × all-reduce, on a share of the training nodes.

An epoch is `--steps` K optimizer steps. Each is on the training nodes of some clusters, with every row that these
depend on, as it is now. Nothing is sampled and nothing is old. Layers before the last compute a row in each step that
needs it: neighbours of training nodes of several shares more than once. Clusters keep these few.
"""

from collections.abc import Iterator, Sequence

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.extras.steps.options import options_of
from hpcgnn.extras.steps.shares import deal
from hpcgnn.extras.steps.steps import StepsInTurn
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.transforms.pruning import prune
from hpcgnn.nn.graph import Graph
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.schedules.base import OptimizerState, Schedule, Stage, Step
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.sar import build_sar


class StepsOfBatches(StepsInTurn):
    """One stage, with a step for each share of the training nodes in every epoch."""

    def __init__(
        self, local: LocalGraph, halo: FullHalo, comm: Communicator, config: Config, random: Randomness
    ) -> None:
        super().__init__(comm, random)
        self._local, self._halo = local, halo
        cluster = torch.zeros(local.num_owned, dtype=torch.int32) if local.cluster is None else local.cluster
        train = local.mask("train")
        self._dealt, self.count = deal(cluster, options_of(config).steps, random.key(Purpose.SHARE, 0), comm, train)
        self._batches: list[tuple[Graph, torch.Tensor]] = []

    def prepare(self, graph: Graph) -> None:
        """Make the batches."""
        train = self._local.mask("train")
        self._batches = [self._batch(graph, train & (self._dealt == number)) for number in range(self.count)]

    def steps(self, epoch: int, stage: Stage, graph: Graph, optimizers: Sequence[OptimizerState]) -> Iterator[Step]:
        """A step for each share."""
        if not self._batches:
            self.prepare(graph)
        for number in self.in_turn():
            batch, nodes = self._batches[number]
            yield Step(batch, self.as_whole, nodes=nodes, share=1.0)

    def _batch(self, graph: Graph, seen: torch.Tensor) -> tuple[Graph, torch.Tensor]:
        """The graph of a step, and the own training nodes of its loss. seen: bool (n_p,), these."""
        model, local = self._model, self._local
        what = [1.0] * len(model.convs), model.prunable_layers, model.spec.keeps_input
        parts = prune(local, *what, self._comm, seen)
        views = {
            layer: (part, self._halo if part.inward is local.inward else self._halo.restricted(part))
            for layer, part in enumerate(parts)
            if part is not None
        }
        return graph.pruned(views), torch.nonzero(seen).squeeze(1)


def build_batches(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """Full halo, all-reduce at every step; one step per epoch is `sar`."""
    if options_of(config).steps == 1:
        return build_sar(local, comm, buffers, config, random)
    halo = FullHalo(local, comm, buffers)
    return Schedule(halo, StepsOfBatches(local, halo, comm, config, random))
