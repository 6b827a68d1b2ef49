"""Which pairs of nodes have an edge: mean reciprocal rank and Hits@K of held-out edges, exact over all ranks.

Link metrics take the ranks of edges (ops/pair_ranks.py), not outputs and labels of nodes. All sums
use float64.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.options.task import LINKS
from hpcgnn.tasks.base import Metric, Task
from hpcgnn.traits import TaskTraits

_NONE = "there is no such edge"


def _mean(values: torch.Tensor, comm: Communicator) -> float:
    total, count = comm.total(torch.stack([values.sum(), torch.tensor(float(len(values))).double()])).tolist()
    return total / count if count else math.nan


def mrr(ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The mean of 1 / rank over the edges of all ranks. ranks: float64 (m,), of own edges; mask: bool (m,), which
    count. Collective.
    """
    return _mean(1 / ranks[mask], comm)


def hits(ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator, most: int) -> float:
    """The share of edges whose rank is at most `most`, likewise."""
    return _mean((ranks[mask] <= most).double(), comm)


#: The K of all hits@K.
KS = (1, 3, 10, 20, 50, 100)
_HITS = {f"hits@{most}": Metric(partial(hits, most=most), _NONE) for most in KS}


class Links(Task):
    """A Task without labels. Outputs are embeddings."""

    name, said, outputs = LINKS, "pairs of nodes that have an edge", "numbers of an embedding"
    judged, losses, rows = "edges", ("cross-entropy",), "embedding"
    probabilities = None
    metrics: ClassVar[dict[str, Metric]] = {"mrr": Metric(mrr, _NONE), **_HITS}
    traits = TaskTraits(labels=False, all_rows=True, splits_edges=True, embeds=True)

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs

    def columns(self, outputs: int, names: Sequence[str] = ()) -> list[str]:
        return [f"embedding_{column}" for column in range(outputs)]

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        return torch.zeros(nodes, dtype=torch.int64)


class SharedNegatives(Links):
    """Link prediction with the same negatives for all edges: with a large number of them, a reciprocal rank is
    meaningless.
    """

    metrics: ClassVar[dict[str, Metric]] = {"hits@50": _HITS["hits@50"], **_HITS}
