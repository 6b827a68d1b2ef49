"""Link prediction: its objective, its evaluator, and the choice of held-out edges by the options.

Both have the methods of their counterparts for labels (objective.py, evaluator.py).
"""

import copy
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.given_pairs import GivenSplit
from hpcgnn.graph.held_out import LinkSplit
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.given_links import HELD, NONE, summary
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operators import Pairs
from hpcgnn.ops.pairs import NodePool
from hpcgnn.options import TaskConfig
from hpcgnn.options.link_split import GIVEN, link_shares
from hpcgnn.tasks.evaluator import Judge
from hpcgnn.tasks.link_ranking import ranking_of
from hpcgnn.tasks.link_scorers import SCORERS
from hpcgnn.tasks.registry import fitting_metric, links_task, task_traits

#: The name of the scorer among the modules of a model.
SCORER = "scorer"


def link_split(config: Config) -> LinkSplit | GivenSplit | None:
    """Which edges a run holds out, None for a task of labels. config: resolved."""
    if not task_traits(config.task.task).splits_edges:
        return None
    if config.task.link_split == GIVEN:
        return GivenSplit()
    key = kernels.stream_key(config.run.seed, 0, 0, int(Purpose.LINK_SPLIT))
    return LinkSplit(key, link_shares(config.task.link_split))


def remarks_on_links(config: Config, file: GraphFile) -> list[str]:
    """Lines about held-out edges that come with a graph, and about options that they leave without effect. config:
    resolved. Not collective. Raises FormatError for damage.
    """
    if not task_traits(config.task.task).splits_edges or config.task.link_split != GIVEN:
        return []
    lines = [line for each in summary(file).values() for line in each["faults"]]
    if file.meta.negatives != NONE and config.task.link_negatives != TaskConfig.link_negatives:
        lines.append("without effect: --link-negatives (the negatives come with the graph)")
    return lines


def add_scorer(model: torch.nn.Module, spec: ModelSpec, config: Config) -> None:
    """Make the scorer a part of a new model, so that it is trained, stored and loaded with it."""
    model.add_module(SCORER, SCORERS[config.task.scorer](spec.classes, spec.dtype))


def exact_scorer(model: torch.nn.Module) -> Any:
    """The scorer of a model in float64."""
    return copy.deepcopy(model.get_submodule(SCORER)).double()


def wide(outputs: torch.Tensor) -> torch.Tensor:
    """Embeddings (n_p, F) as scores are computed with them."""
    return outputs if outputs.dtype in (torch.float32, torch.float64) else outputs.float()


class LinkObjective:
    """The mean binary cross-entropy over the training edges and the pairs that are drawn for them. Made collectively.

    model: has its scorer; graph: of the training edges. num_train: training edges, over all ranks, self loops aside.
    Raises GraphError on all ranks if there is none.
    """

    def __init__(
        self, model: torch.nn.Module, graph: Graph, comm: Communicator, random: Randomness, config: Config
    ) -> None:
        self._scorer = model.get_submodule(SCORER)
        self._graph, self._random = graph, random
        self._negatives, self._pool_size = config.task.negatives, config.task.negative_pool
        self.num_train = int(comm.total(torch.tensor([graph.operator(Pairs()).count_pairs()]), "plan"))
        if self.num_train == 0:
            raise GraphError.on_all(
                f"the graph has no edge to train on (self loops aside) with --link-split {config.task.link_split}; "
                "expected a graph with edges, or a larger first share"
            )

    def local_loss(self, embeddings: torch.Tensor, nodes: torch.Tensor | None = None) -> torch.Tensor:
        """This rank's share of the mean loss: a float64 scalar; the shares of all ranks add up to the loss. Collective.

        embeddings: (n_p, F) of own nodes. nodes: None, for the loss needs all rows.
        """
        graph, random = self._graph, self._random
        pool = NodePool.drawn(random.key(Purpose.LINK_POOL, 0), self._pool_size, graph.ids, graph.num_nodes)
        key = random.key(Purpose.LINK_NEGATIVE, 0)
        total = graph.operator(Pairs())(wide(embeddings), self._scorer, pool, key, self._negatives)
        return total / (self.num_train * (1 + self._negatives))


class LinkEvaluator(Judge):
    """Ranks the held-out edges. The ledger books its traffic as `evaluation`. Made collectively.

    Attributes:
        counts: {split: its edges, over all ranks}; training edges are not ranked.
        name, metric: the metric that chooses the best epoch.

    Raises:
        ConfigError: on all ranks, for a metric that does not fit.
    """

    def __init__(
        self, model: torch.nn.Module, local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config
    ) -> None:
        self._model, self._comm, self.task = model, comm, links_task(local.compared_with)
        self.name = fitting_metric(config.run.metric, self.task, local.num_classes)
        self.metric = self.task.metrics[self.name]
        numbers = torch.tensor([local.held[split].num_edges for split in HELD])
        self.counts: dict[str, int] = {"train": 0, **dict(zip(HELD, comm.total(numbers, "plan").tolist(), strict=True))}
        self._ranking = ranking_of(local, self.counts, comm, buffers, config)

    def in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        """Embeddings as they are."""
        return outputs

    def scores(self, outputs: torch.Tensor) -> dict[str, Any]:
        """Return the metrics of embeddings (n_p, F) of owned nodes. Collective.

        Returns:
            {'train': NaN, 'val': value, 'test': value, 'links': {'val': {metric: value of all metrics}, 'test': …}}. A
                split without edges has NaN.
        """
        scorer = exact_scorer(self._model)
        found: dict[str, dict[str, float]] = {}
        for split, ranks in self._ranking.ranks(wide(outputs), scorer):
            every = torch.ones(len(ranks), dtype=torch.bool)
            metrics = self.task.metrics.items()
            found[split] = {name: metric.score(ranks, ranks, every, self._comm) for name, metric in metrics}
        chosen = {split: values[self.name] for split, values in found.items()}
        return {"train": float("nan"), **chosen, "links": found}
