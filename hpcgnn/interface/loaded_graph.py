"""A rank's share of a graph for training in a script: data for layers (nn/graph.py), and operations of a loop.

A loss is a mean over the training nodes of all ranks, so each rank's gradients cover its own share of it. `loss` shows
the mean and differentiates the share, and `sync_gradients` adds the shares up. Each costs one collective message per
step.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.engine.views import Constants
from hpcgnn.errors import ConfigError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.split import EdgeList
from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import initialise
from hpcgnn.nn.model import traits_of
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operators import Attention, Made, Operator, WeightedSum
from hpcgnn.ops.row_functions import RowFunction
from hpcgnn.options.inputs import inputs_of
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.tasks.base import Scale
from hpcgnn.tasks.labels import Evaluator, LabelTask, Objective
from hpcgnn.tasks.registry import TASKS
from hpcgnn.tasks.regression import scale_of

AnyModule = TypeVar("AnyModule", bound=torch.nn.Module)


@dataclass(frozen=True)
class LoadedGraph:
    """The result of `load`.

    Attributes:
        stated: whether the user chose about self loops.
        with_loops: with_loops(self_loops) reads the same share anew with this choice. Collective.
    """

    local: LocalGraph
    config: Config
    comm: Communicator
    buffers: HaloBuffers
    meta: GraphMeta
    stated: bool
    with_loops: Callable[[str], LocalGraph]


class TrainingGraph(Graph):
    """A rank's share of a graph.

    Every method that computes or counts is collective: all ranks call it, in the same order. Tensors of nodes have a
    row for each of the n_p owned nodes, in one order. Layers use the methods of `Graph`.

    Attributes:
        features: (n_p, F) float, or SparseRows.
        labels: int64 (n_p,) with -1 for none, float (n_p, C) of 0 and 1, or float (n_p, T) with NaN for none.
        train_mask, val_mask, test_mask: bool (n_p,), nodes with a label.
        ids: int64 (n_p,), numbers of the nodes in the source of the graph file.
        task: 'classification', 'multilabel' or 'regression'.
        num_nodes, num_features, num_classes: numbers of the whole graph; for regression, num_classes counts targets.
        rank, size: number of this process, and number of processes.
    """

    def __init__(self, loaded: LoadedGraph) -> None:
        self._loaded, self._models = loaded, []  # type: tuple[LoadedGraph, list[weakref.ref[torch.nn.Module]]]
        local, comm, config = loaded.local, loaded.comm, loaded.config
        self.random = Randomness(config.run.seed)
        asked = _Asked(FullHalo(local, comm, loaded.buffers), loaded.stated)
        super().__init__(local, asked, comm.total, self.random, Constants(comm.ledger), loaded.buffers.arena)
        self.rank, self.size = comm.rank, comm.size
        self.labels, self.task, self._task = local.labels, local.task, cast(LabelTask, TASKS[local.task])
        self.num_classes, self.num_features = (
            loaded.meta.num_classes,
            inputs_of(config.task.features).fixed(loaded.meta.num_features, loaded.meta.num_edge_features),
        )
        self.train_mask, self.val_mask, self.test_mask = (local.mask(split) for split in ("train", "val", "test"))
        self._views: dict[str, Graph] = {config.data.self_loops: self}
        self._evaluators: dict[str, Evaluator] = {}
        self._objective: Objective | None = None
        self._scale: Scale | None = None

    def __repr__(self) -> str:
        return f"TrainingGraph({self._loaded.config.data.graph}: {len(self.ids)} of {self.num_nodes} nodes)"

    def initialise(self, model: AnyModule) -> AnyModule:
        """Give a model the same parameters and buffers on all ranks, and return it. Collective.

        Layers of hpcgnn.nn get the same parameters as in `hpcgnn train` with the same seed; others get rank 0's.
        Afterwards, `epochs` checks that the ranks do not drift apart.
        """
        for tensor in (*model.parameters(), *model.buffers()):
            if torch.nn.parameter.is_lazy(tensor):
                raise ConfigError.on_all(
                    "initialise: a parameter has no shape yet; state the widths of the layers (not -1)"
                )
            same = tensor.data.contiguous()
            tensor.data.copy_(self._loaded.comm.broadcast_(same, 0, "control"))
        initialise(model, self.random)
        self._models.append(weakref.ref(model))
        return model

    def epochs(self, count: int, first: int = 0) -> Iterator[int]:
        """Yield the epochs first … count - 1, as `range` does, and make `dropout` draw anew in each. Collective.

        Raises ConfigError, on all ranks, if an `initialise`d model differs between ranks: gradients were not added up.
        """
        for epoch in range(first, count):
            self._compare(epoch)
            self.random.epoch = epoch
            yield epoch
        self._compare(count)

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the mean loss over the training nodes of the whole graph. Collective.

        The loss is cross-entropy, binary cross-entropy for multi-label tasks, or the squared error for regression, in
        the units of the labels (see `scale`). Call `sync_gradients` after `backward`: the gradients cover this rank's
        share of the mean.

        Args:
            logits: (n_p, C) of owned nodes, or the rows of owned training nodes alone.

        Returns:
            a scalar, the same on all ranks.

        Raises:
            GraphError: no node is for training.
        """
        if self._objective is None:
            self._objective = Objective(self._task, self._local, self._loaded.comm, self.arena)
        return _Shown.apply(self._objective.local_loss(logits), self._loaded.comm)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean of all ranks' values, for custom losses. Collective.

        Args:
            values: (m,) of any owned rows; m may differ between ranks.

        Returns:
            a scalar with gradients like the result of `loss`.
        """
        comm = self._loaded.comm
        count = int(comm.total(torch.tensor([values.numel()])))
        return _Shown.apply(values.sum() / max(1, count), comm)

    def sync_gradients(self, model: torch.nn.Module | Sequence[torch.nn.Parameter]) -> None:
        """Add up the gradients of all ranks, between `backward` and the optimizer's step. Collective, one message.

        A parameter with a gradient on one rank gets one on all; a parameter without any stays without.
        """
        given = model.parameters() if isinstance(model, torch.nn.Module) else model
        parameters = [parameter for parameter in given if parameter.requires_grad]
        for dtype in sorted({parameter.dtype for parameter in parameters}, key=str):
            some = [parameter for parameter in parameters if parameter.dtype == dtype]
            grads = [torch.zeros_like(each) if each.grad is None else each.grad for each in some]
            there = torch.tensor([each.grad is not None for each in some], dtype=dtype)
            flat = torch.cat([there, *(grad.reshape(-1) for grad in grads)])
            self._loaded.comm.allreduce_(flat, "allreduce")
            counts, *sums = flat.split([len(some), *(each.numel() for each in some)])
            for parameter, count, total in zip(some, counts, sums, strict=True):
                if count:
                    parameter.grad = total.view_as(parameter).clone()

    def scores(self, logits: torch.Tensor, metric: str = "auto") -> dict[str, float]:
        """{'train', 'val', 'test'} of a metric of the task, as `--metric` has them: 'auto' is accuracy, 'micro-f1' for
        multi-label tasks and 'rmse' for regression. Over the nodes of all ranks. logits: (n_p, C). Collective. Raises
        ConfigError for a metric that does not fit the task.
        """
        if metric not in self._evaluators:
            self._evaluators[metric] = Evaluator(self._task, self._local, metric, self._loaded.comm)
        with torch.no_grad():
            return self._evaluators[metric].scores(logits)

    @property
    def scale(self) -> Scale:
        """For regression: the mean and deviation of the training nodes' targets. The first use is collective.

        With it a model can learn targets in any units: `loss` and `scores` take `graph.scale.in_units(model(graph))`
        (n_p, T).

        Raises:
            ConfigError: on all ranks, for other tasks.
        """
        if self.task != REGRESSION:
            raise ConfigError.on_all(f"graph.scale is for regression, and the labels of this graph are for {self.task}")
        if self._scale is None:
            self._scale = scale_of(self.labels[self.train_mask], self._loaded.comm)
        return self._scale

    def accuracy(self, logits: torch.Tensor) -> dict[str, float]:
        """`scores` by accuracy."""
        return self.scores(logits, "accuracy")

    def seen_with(self, self_loops: str) -> Graph:
        """Return the share with self loops added ('add') or the edges as they are ('keep'). Collective.

        This is the same graph, or another one, read on first use, which shares the features.
        """
        if self_loops not in self._views:
            mine = self._local
            other = self._loaded.with_loops(self_loops)
            names = ("features", "labels", "split", "original_id", "node_type")
            other = replace(other, **{name: getattr(mine, name) for name in names})
            comm, buffers = self._loaded.comm, self._loaded.buffers
            self._views[self_loops] = self.over(other, FullHalo(other, comm, buffers))
        return self._views[self_loops]

    def propagate(self, message: RowFunction, *arguments: Any, **options: Any) -> torch.Tensor:
        """See `Graph.propagate`."""
        if traits_of(getattr(message, "__self__", None)).self_loops == "add" and not self._loaded.stated:
            raise _unstated()
        return super().propagate(message, *arguments, **options)

    @property
    def _edges(self) -> EdgeList:
        if self._local.inward.edges is None:
            raise ConfigError.on_all(
                "weights, types and features of edges were not kept; say hpcgnn.load(…, edges=True)"
            )
        return self._local.inward.edges

    def _compare(self, epoch: int) -> None:
        """Raise ConfigError, on all ranks, if their parameters differ after `epoch` epochs."""
        digest = hashlib.sha256()
        for model in filter(None, (reference() for reference in self._models)):
            for parameter in model.parameters():
                digest.update(parameter.detach().contiguous().numpy().data)
        number = int.from_bytes(digest.digest()[:7], "big")
        extremes = self._loaded.comm.allreduce_(torch.tensor([number, -number]), "control", "max")
        if extremes[0] != -extremes[1]:
            raise ConfigError.on_all(
                f"after {epoch} epochs the parameters differ between ranks; expected graph.sync_gradients(model) "
                "between loss.backward() and the optimizer's step, and no other change of parameters on one rank alone"
            )


class _Asked:
    """A halo policy that does not guess whether self loops are wanted."""

    def __init__(self, halo: FullHalo, stated: bool) -> None:
        self._halo, self._stated = halo, stated

    def operator(self, description: Operator[Made]) -> Made:
        """The operator of this description. Raises ConfigError, on all ranks."""
        usual = isinstance(description, Attention) or (
            isinstance(description, WeightedSum) and description.norm == "sym"
        )
        if usual and not self._stated:
            raise _unstated()
        return self._halo.operator(description)


class _Shown(torch.autograd.Function):
    """The sum over ranks of their shares of a scalar, with the gradient of this rank's share."""

    @staticmethod
    def forward(ctx: Any, share: torch.Tensor, comm: Communicator) -> torch.Tensor:
        return comm.total(share.detach().double().reshape(1)).to(share.dtype)[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _unstated() -> ConfigError:
    return ConfigError.on_all(
        "this layer counts a node among its own neighbours as a rule, and hpcgnn.load got no choice; "
        "expected self_loops='add', as `hpcgnn train` does for gcn, sgc, appnp, gat and gatv2, or "
        "self_loops='keep' for the edges as they are"
    )
