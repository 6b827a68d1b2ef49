"""Hops of features and of labels along the edges, for `hpcgnn propagate`.

A training node must not see its own label, which comes back along self loops and over its neighbours. So training nodes
are dealt into G = 5 folds by their original ids. A node sees the labels of the other folds alone, scaled by
G / (G - 1). Other nodes see all labels. The hops are linear, so the sum over the folds gives both:

    L_v = Σ_g (A^k Y_g)_v              of a node that is no training node
    L_v = G / (G - 1) Σ_{g ≠ g(v)} (A^k Y_g)_v    of a training node, where Y_g are the labels of fold g
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graphfile.label_files import REGRESSION
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.memory.stored_rows import StoredRows
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operators import WeightedSum
from hpcgnn.schedules.full_halo import FullHalo

_TILE = 1 << 20
_FOLDS = 5


def check_roots(local: LocalGraph, comm: Communicator, who: str) -> None:
    """Raise GraphError, on all ranks, if the weights of some node sum to less than 0. Collective.

    who: subject of the message that divides by the root of the sum, as in `labels divide`.
    """
    below = sum(int((way.degree < 0).sum()) for way in (local.inward, local.outward))
    if comm.total(torch.tensor([below]), "plan").item():
        raise GraphError.on_all(
            f"the edge weights of some nodes sum to less than 0, and {who} by the root of that sum: expected sums "
            "above 0; make the weights positive"
        )


#: {a value of --operators: the norm of its hops (graph/local.py)}. Each hop of ppr takes back a part of the features.
OPERATORS = {"sym": "sym", "mean": "mean", "ppr": "sym"}


@dataclass(frozen=True)
class HopRequest:
    """The request of `hpcgnn propagate`.

    Attributes:
        operators: keys of `OPERATORS`.
        hops: number of hops of each operator.
        teleport: weight of the features in a hop of `ppr`.
        output: the graph file to write.
        force: whether the file may exist.
        label_hops: number of hops of the training nodes' labels.
    """

    output: str
    operators: tuple[str, ...] = ("sym",)
    hops: int = 2
    teleport: float = 0.1
    force: bool = False
    label_hops: int = 0

    @property
    def label_parts(self) -> int:
        """How many of the groups of columns are of labels."""
        return len(self.operators) * self.label_hops

    def widths(self, meta: GraphMeta) -> tuple[int, ...]:
        """Columns of each group of columns: the features, all hops, and then hops of labels. Raises GraphError, on all
        ranks, for labels that have no hops.
        """
        if self.label_hops and meta.task == REGRESSION:
            raise GraphError.on_all("--label-hops: expected classes or 0/1 labels, and those of the graph are numbers")
        return (meta.num_features,) * (1 + len(self.operators) * self.hops) + (meta.num_classes,) * self.label_parts

    def record(self, self_loops: str) -> str:
        """Return the processing of the features, as JSON. Unused options are left out."""
        done = asdict(self) | {"last": False, "label_folds": _FOLDS, "self_loops": self_loops}
        unused = {"output", "force"} | (set() if self.label_hops else {"label_hops", "label_folds"})
        return json.dumps({name: done[name] for name in sorted(done.keys() - unused)})


def features_of(local: LocalGraph) -> torch.Tensor:
    """The dense features of own nodes (n_p, F), which the caller must not change."""
    features = local.features
    assert not isinstance(features, StoredRows), "they are read into memory"
    return _dense(features) if isinstance(features, SparseRows) else features


def hops_of(halo: FullHalo, x: torch.Tensor, request: HopRequest) -> Iterator[torch.Tensor]:
    """Yield the hops (n_p, F) of rows x of own nodes, of one operator after another.

    Collective: exhaust it on all ranks, without autograd. The caller must not change a yielded hop.
    """
    for name in request.operators:
        yield from _hops(halo, name, x, request.hops, request.teleport)


def label_hops_of(halo: FullHalo, local: LocalGraph, dtype: torch.dtype, request: HopRequest) -> Iterator[torch.Tensor]:
    """Yield the hops (n_p, C) of labels, as `hops_of`. It holds all hops of an operator at a time."""
    train = local.mask("train")
    fold = torch.where(train, _folds(local.original_id), -1)
    for name in request.operators:
        shape = local.num_owned, local.num_classes
        sums = [torch.zeros(shape, dtype=dtype) for _ in range(request.label_hops)]
        for number in range(_FOLDS):
            mine = fold == number
            y = _labels(local, mine, dtype)
            for total, rows in zip(sums, _hops(halo, name, y, request.label_hops, request.teleport), strict=True):
                total.add_(rows.masked_fill(mine[:, None], 0))
        while sums:
            sums[0][train] *= _FOLDS / (_FOLDS - 1)
            yield sums.pop(0)


def _hops(halo: FullHalo, name: str, x: torch.Tensor, hops: int, teleport: float) -> Iterator[torch.Tensor]:
    operator, y = halo.operator(WeightedSum(OPERATORS[name], x.dtype)), x
    for _ in range(hops):
        y = operator(y)
        if name == "ppr":
            y.mul_(1 - teleport).add_(x, alpha=teleport)
        yield y


def _labels(local: LocalGraph, chosen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(n_p, C): the labels of the chosen nodes, zeros for others."""
    where = torch.nonzero(chosen).squeeze(1)
    return show_labels(torch.zeros(local.num_owned, local.num_classes, dtype=dtype), where, local.labels[where])


def show_labels(columns: torch.Tensor, where: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Write labels, one-hot where they are classes, to the rows `where` of zeros (n_p, C); return these."""
    if labels.dim() == 1:
        columns[where, labels] = 1
    else:
        columns[where] = labels.to(columns.dtype)
    return columns


def _folds(ids: torch.Tensor) -> torch.Tensor:
    """int64: the fold of each node, by its original id alone."""
    key = Randomness(0).key(Purpose.LABEL_FOLD, 0)
    tiles = [kernels.random_words(key, each, 1)[:, 0] % _FOLDS for each in ids.split(_TILE)]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *tiles])


def _dense(x: SparseRows) -> torch.Tensor:
    rows, out = torch.repeat_interleave(torch.diff(x.indptr)), torch.zeros(x.shape, dtype=x.data.dtype)
    return out.index_put_((rows, x.indices.long()), x.data, accumulate=True)
