"""The task `links`: which pairs of nodes have an edge. Its metrics are the mean reciprocal rank and Hits@K of held-out
edges, exact over all ranks.

Metrics take the ranks of edges (ranks.py), not outputs and labels of nodes. All sums use float64.
"""

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.exchange.stream import Stream
from hpcgnn.extras.links.given import GivenTaskEdges, negatives_of
from hpcgnn.extras.links.held_out import Drawn
from hpcgnn.extras.links.loss import NodePool, Pairs
from hpcgnn.extras.links.options import AUTO, GIVEN, LINKS, USUAL, LinksConfig, drawn_shares, options_of
from hpcgnn.extras.links.ranks import Known, pair_ranks, pair_scores, ranks_among_all, ranks_among_own, with_ids
from hpcgnn.extras.links.scorers import SCORERS
from hpcgnn.graph.load import TaskEdges
from hpcgnn.graphfile.given_links import EACH, HELD, NONE, SHARED, summary
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.draws import Purpose
from hpcgnn.tasks.base import Judge, Loss, Metric, Setting, Task
from hpcgnn.traits import TaskTraits


def mean_over_edges(
    ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, most: int = 0
) -> float:
    """The share of edges of all ranks whose rank is at most `most`; for 0, the mean of 1 / rank. Collective.

    ranks: float64 (m,), of own edges; mask: bool (m,), which count.
    """
    values = (ranks[mask] <= most).double() if most else 1 / ranks[mask]
    total, count = comm.total(torch.stack([values.sum(), torch.tensor(float(len(values))).double()])).tolist()
    return total / count if count else math.nan


#: The K of all hits@K.
KS = (1, 3, 10, 20, 50, 100)
_HITS = {f"hits@{most}": Metric(partial(mean_over_edges, most=most)) for most in KS}


class Links(Task):
    """A Task without labels. Outputs are embeddings."""

    name, said, outputs = LINKS, "pairs of nodes that have an edge", "numbers of an embedding"
    judged, losses, rows, module = "edges", ("cross-entropy",), "embedding", "scorer"
    metrics: ClassVar[dict[str, Metric]] = {"mrr": Metric(mean_over_edges), **_HITS}
    traits = TaskTraits(labels=False, all_rows=True, embeds=True)

    def resolve(self, config: Config, meta: GraphMeta) -> Config:
        wanted = options_of(config).link_split
        if wanted == GIVEN and not meta.negatives:
            raise ConfigError.on_all(
                f"--link-split {GIVEN}: expected a graph file with held-out edges, and {config.data.graph} has none; "
                f"say shares such as {USUAL}, or import the graph with its held-out edges"
            )
        if wanted == AUTO:
            wanted = GIVEN if meta.negatives else USUAL
        task = SharedNegatives() if wanted == GIVEN and meta.negatives == SHARED else Links()
        return Task.resolve(task, config.replace(link_split=wanted), meta)

    def elsewhere(self, config: Config, meta: GraphMeta) -> Config:
        missing = options_of(config).link_split == GIVEN and not meta.negatives
        return super().elsewhere(config.replace(link_split="1/0/0") if missing else config, meta)

    def remarks(self, config: Config, file: GraphFile) -> list[str]:
        """Raises FormatError for damage."""
        if options_of(config).link_split != GIVEN:
            return []
        lines = [line for each in summary(file).values() for line in each["faults"]]
        if file.meta.negatives != NONE and options_of(config).link_negatives != LinksConfig.link_negatives:
            lines.append("without effect: --link-negatives (the negatives come with the graph)")
        return lines

    def task_edges(self, config: Config) -> TaskEdges:
        shares, key = drawn_shares(options_of(config).link_split), Purpose.LINK_SPLIT
        return (
            GivenTaskEdges() if shares is None else Drawn(kernels.stream_key(config.run.seed, 0, 0, int(key)), shares)
        )

    def prepare_model(self, model: torch.nn.Module, spec: ModelSpec, config: Config) -> None:
        """The scorer becomes a part of the model, so that it is trained, stored and loaded with it."""
        model.add_module(self.module, SCORERS[options_of(config).scorer](spec.classes, spec.dtype))

    def judges(self, on: Setting, learns: bool) -> tuple[Judge, Loss | None]:
        return LinkEvaluator(on), LinkObjective(on) if learns else None

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return [f"embedding_{column}" for column in range(outputs)]


class SharedNegatives(Links):
    """Links with the same negatives for all edges: with a large number of them, a reciprocal rank is meaningless."""

    metrics: ClassVar[dict[str, Metric]] = {"hits@50": _HITS["hits@50"], **_HITS}


def exact_scorer(model: torch.nn.Module) -> Any:
    """The scorer of a model in float64."""
    return copy.deepcopy(model.get_submodule(Links.module)).double()


def wide(outputs: torch.Tensor) -> torch.Tensor:
    """Embeddings (n_p, F) as scores are computed with them."""
    return outputs if outputs.dtype in (torch.float32, torch.float64) else outputs.float()


class LinkObjective(Loss):
    """The mean binary cross-entropy over the training edges and the pairs that are drawn for them. Made collectively.

    num_train: training edges, over all ranks, self loops aside. Raises GraphError on all ranks if there is none.
    """

    def __init__(self, on: Setting) -> None:
        self._on, self._options = on, options_of(on.config)
        pairs = on.graph.operator(Pairs()).count_pairs()
        self.num_train = int(on.comm.total(torch.tensor([pairs]), "plan"))
        if self.num_train == 0:
            raise GraphError.on_all(
                f"the graph has no edge to train on (self loops aside) with --link-split {self._options.link_split}; "
                "expected a graph with edges, or a larger first share"
            )

    def local_loss(self, outputs: torch.Tensor, nodes: torch.Tensor | None = None) -> torch.Tensor:
        """A float64 scalar. Collective. outputs: of all own nodes; nodes: None, for the loss needs all rows."""
        graph, random, negatives = self._on.graph, self._on.random, self._options.negatives
        key = random.key(Purpose.LINK_POOL, 0)
        pool = NodePool.drawn(key, self._options.negative_pool, graph.ids, graph.num_nodes)
        key, scorer = random.key(Purpose.LINK_NEGATIVE, 0), self._on.model.get_submodule(Links.module)
        total = graph.operator(Pairs())(wide(outputs), scorer, pool, key, negatives)
        return total / (self.num_train * (1 + negatives))


class LinkEvaluator(Judge):
    """Ranks the held-out edges. The ledger books its traffic as `evaluation`. Made collectively. Training edges are not
    ranked.

    Raises:
        ConfigError: on all ranks, for a metric that does not fit.
    """

    def __init__(self, on: Setting) -> None:
        local, comm = on.local, on.comm
        self._model, self._comm = on.model, comm
        self._kind = next((kind for kind in (SHARED, EACH) if negatives_of(kind, HELD[0]) in local.task_edges), NONE)
        self.task = SharedNegatives() if self._kind == SHARED else Links()
        self.name = self.task.fitting_metric(on.config.run.metric, local.num_classes)
        self.metric = self.task.metrics[self.name]
        self._splits = [split for split in HELD if split in local.task_edges]
        numbers = torch.tensor([local.task_edges[split].num_edges for split in self._splits])
        counts = comm.total(numbers, "plan").tolist() if self._splits else []
        self.counts = {**dict.fromkeys(("train", *HELD), 0), **dict(zip(self._splits, counts, strict=True))}
        names = self._splits + [negatives_of(self._kind, split) for split in self._splits if self._kind != NONE]
        judged = {name: local.task_edges[name] for name in names}
        self._streams = {
            name: Stream(edges.own, edges.halo, edges.plan, on.buffers, comm) for name, edges in judged.items()
        }
        if self._kind == NONE:
            key = kernels.stream_key(on.config.run.seed, 0, 0, int(Purpose.LINK_CANDIDATE))
            count = options_of(on.config).link_negatives
            self._pool = NodePool.drawn(key, count, local.original_id, local.num_nodes)
            known = with_ids((local.inward, *local.task_edges.values()), local.original_id, comm)
            self._known = Known(self._pool, local.num_owned, known)

    def scores(self, outputs: torch.Tensor) -> dict[str, Any]:
        """Return the metrics of embeddings (n_p, F) of owned nodes. Collective.

        Returns:
            {'train': NaN, 'val': value, 'test': value, 'links': {'val': {metric: value of all metrics}, 'test': …}}. A
                split without edges has NaN.
        """
        h, scorer, metrics = wide(outputs), exact_scorer(self._model), self.task.metrics.items()
        rows = self._pool.gathered(h, self._comm, "evaluation") if self._kind == NONE else None
        found: dict[str, dict[str, float]] = {}
        for split in self._splits:
            ranks = self._ranks(split, h, scorer, rows)
            every = torch.ones(len(ranks), dtype=torch.bool)
            found[split] = {name: metric.score(ranks, ranks, every, self._comm) for name, metric in metrics}
        chosen = {split: values[self.name] for split, values in found.items()}
        return {**dict.fromkeys(("train", *HELD), math.nan), **chosen, "links": found}

    def _ranks(self, split: str, h: torch.Tensor, scorer: Any, rows: torch.Tensor | None) -> torch.Tensor:
        """float64 (m,): the ranks of the edges of a split on this rank. Collective. rows: of the pool."""
        stream = self._streams[split]
        if rows is not None:
            return pair_ranks(stream, h, rows, self._known, scorer)
        pairs, negatives = (
            pair_scores(each, h, scorer) for each in (stream, self._streams[negatives_of(self._kind, split)])
        )
        if self._kind == SHARED:
            return ranks_among_all(pairs[1], negatives[1], max(KS), self._comm)
        return ranks_among_own(pairs, negatives, self.counts[split], self._comm)
