"""Labels of training nodes as inputs (`--label-reuse`), with masking: Shi et al., IJCAI'21; Wang et al., 2021.

In each step some training nodes, drawn anew, have their labels among their features, and the loss is taken on the
others, so that no node's loss sees its own label. In an evaluation all training nodes have theirs. Who is drawn is a
function of seed, epoch and original node id, and so the same on every number of ranks.
"""

import torch

from hpcgnn import kernels
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Purpose, Randomness

_TILE = 1 << 20


class ReusedLabels:
    """The columns of own nodes. rows: (n_p, C), the label as 0 and 1 of nodes whose label is given, zeros of others; at
    first all training nodes' are. share: the probability that a training node is drawn.
    """

    def __init__(self, local: LocalGraph, share: float, dtype: torch.dtype) -> None:
        self._where = torch.nonzero(local.mask("train")).squeeze(1)
        self._labels, self._ids, self._share = local.labels[self._where], local.original_id[self._where], share
        self.rows = torch.zeros(len(local.original_id), local.num_classes, dtype=dtype)
        self.give_all()

    def give_all(self) -> None:
        """Give the labels of all training nodes."""
        self._give(torch.ones(len(self._where), dtype=torch.bool))

    def draw(self, random: Randomness) -> torch.Tensor:
        """Give those of the nodes that are drawn in the present step. Returns which: bool (m_p,), of the own training
        nodes.
        """
        key, below = random.key(Purpose.REUSED_LABEL, 0), round(self._share * 2**32)
        tiles = [kernels.random_words(key, ids, 1)[:, 0] < below for ids in self._ids.split(_TILE)]
        given = torch.cat(tiles)
        self._give(given)
        return given

    def _give(self, given: torch.Tensor) -> None:
        self.rows.zero_()
        where, labels = self._where[given], self._labels[given]
        if labels.dim() == 1:
            self.rows[where, labels] = 1
        else:
            self.rows[where] = labels.to(self.rows.dtype)
