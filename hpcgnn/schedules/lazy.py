"""Layer by layer (Retexo, Kolluri et al., 2023): frozen halo × one layer at a time.

A layer's input does not change while the layer is trained, so neighbours send it once. A run of L layers has L
exchanges, whatever the number of epochs, and no gradient of a row ever travels. Each layer trains with a linear head of
its own. Its best epoch is kept, and passes on the head's input. Degrees come from the whole graph, and gradients are
sums over all ranks, so the curve does not depend on the number of ranks.

A layer keeps the aggregate of its input, if the aggregate has no parameters (gcn, sage, gin). Other layers (gat and
others; sparse features, which are never densified) keep their neighbours' rows. They then compute on the graph of owned
and halo nodes as on a graph of one rank.

A resumed run recomputes the kept rows from the parameters of the layers before, and the ledger books that as `resume`.
Rows in checkpoints would cost n × width numbers on disk each time, and fit one number of ranks only.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from hpcgnn.comm.communicator import Communicator, SoloCommunicator
from hpcgnn.config import Config, per_layer
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graph.transforms.halo_copies import halo_rows, sparse_with_halo
from hpcgnn.graph.transforms.subgraphs import with_halo
from hpcgnn.memory.stored_rows import StoredRows
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.model import Model
from hpcgnn.nn.stage import Frozen, KeptAggregate, KeptRows, LayerStage, add_heads
from hpcgnn.ops.draws import Randomness
from hpcgnn.option_fields import option
from hpcgnn.options import OptimConfig, ScheduleConfig
from hpcgnn.schedules.base import AllreduceEveryStep, OptimizerState, Schedule, ScheduleEntry, Stage
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.traits import ScheduleTraits


@dataclass(frozen=True, kw_only=True)
class LazyConfig(ScheduleConfig):
    """The options of `lazy`."""

    layer_epochs: str = option(
        "",
        "lazy: epochs of each layer, as 100,100,200 (default: --epochs)",
        schedules=("lazy",),
    )


class LayerByLayer(AllreduceEveryStep):
    """A stage for each layer. halo: FullHalo; options: LazyConfig."""

    def __init__(
        self, local: LocalGraph, halo: FullHalo, comm: Communicator, buffers: HaloBuffers, options: LazyConfig
    ) -> None:
        super().__init__(comm)
        self._local, self._halo, self._buffers, self._options = local, halo, buffers, options
        self._layer, self._resumed = -1, False
        self._present: Frozen | None = None

    def plan(self, options: OptimConfig) -> list[OptimConfig]:
        """Return each layer's epochs."""
        epochs = per_layer("--layer-epochs", self._options.layer_epochs, self._num_layers, options.epochs)
        return [replace(options, epochs=count) for count in epochs]

    def extend(self, model: Model) -> None:
        """Heads."""
        add_heads(model)
        self._num_layers = len(model.convs)
        self.first_whole = self._num_layers - 1

    def stage(self, index: int, options: OptimConfig, model: Model, graph: Graph) -> Stage:
        """A layer with its head."""
        return Stage(
            LayerStage(model, index, lambda: self._frozen(index, model, graph)), options, note={"layer": index + 1}
        )

    def restore(self, state: Mapping[str, torch.Tensor], optimizers: Sequence[OptimizerState]) -> None:
        """Restore the state of the optimizers; the kept rows are computed again."""
        self._layer, self._present, self._resumed = -1, None, True

    def _frozen(self, index: int, model: Model, graph: Graph) -> Frozen:
        """Return the frozen input of a layer: kept, or exchanged now from the kept input of a layer before, or from the
        start.
        """
        for layer in range(self._layer + 1 if self._layer <= index else 0, index + 1):
            x = graph.features
            if layer > 0:
                with self._booked("halo_forward"):
                    x = LayerStage(model, layer - 1, self._kept).hidden(graph)
            with torch.no_grad():
                self._present = self._exchange(layer, x, model, graph)
            self._layer = layer
        self._resumed = False
        return self._kept()

    def _kept(self) -> Frozen:
        assert self._present is not None, "what `_layer` names is there"
        return self._present

    def _booked(self, kind: str) -> AbstractContextManager[None]:
        return self._comm.ledger.booked_as("resume" if self._resumed else kind)

    def _exchange(self, layer: int, x: torch.Tensor | SparseRows | StoredRows, model: Model, graph: Graph) -> Frozen:
        """Send the layer's input to all who need it, once. Collective."""
        conv: Any = model.convs[layer]  # a Conv or alike
        spec, first = model.spec, layer == 0
        kind = "resume" if self._resumed else "input" if first else "halo_forward"
        if spec.constant_input and not isinstance(x, SparseRows) and not (first and spec.drops_rows):
            with self._comm.ledger.booked_as(kind):
                return KeptAggregate(conv.gather(graph, x), x)
        assert not isinstance(x, StoredRows), "only kept aggregates lie outside of memory"
        with_its_halo = self._graph_with_halo(graph)
        rows: torch.Tensor | SparseRows
        if isinstance(x, SparseRows):
            rows = sparse_with_halo(x, self._local.inward.plan, self._comm, kind)
        else:
            rows = torch.cat([x, halo_rows(self._halo.inward, x, kind)])
        return KeptRows(with_its_halo, rows, self._local.num_owned)

    def _graph_with_halo(self, graph: Graph) -> Graph:
        if self._with_halo is None:
            local, alone = with_halo(self._local, self._comm), SoloCommunicator()
            self._with_halo = graph.over(local, FullHalo(local, alone, self._buffers))
        return self._with_halo

    _with_halo: Graph | None = None


def build_lazy(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """The schedule for a LocalGraph."""
    halo = FullHalo(local, comm, buffers)
    return Schedule(halo, LayerByLayer(local, halo, comm, buffers, cast(LazyConfig, config.schedule)))


def check_lazy(config: Config, layers: int) -> None:
    """See ScheduleEntry."""
    per_layer("--layer-epochs", cast(LazyConfig, config.schedule).layer_epochs, layers, config.optim.epochs)


SCHEDULE = ScheduleEntry(
    build_lazy,
    ScheduleTraits(layer_by_layer=True, partial_sums="dense", within_memory=True),
    check_lazy,
    LazyConfig,
)
