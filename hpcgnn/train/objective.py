"""The loss: a mean over the training nodes of the whole graph, so that no rank's share changes its meaning."""

import torch
import torch.nn.functional as F

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.cross_entropy import cross_entropy


class Objective:
    """Cross-entropy over classes, or binary cross-entropy over nodes and labels for multi-label tasks. Made
    collectively.

    Raises GraphError on all ranks if no node of the graph is a training node. A rank without any takes part with a
    zero.
    """

    def __init__(self, local: LocalGraph, comm: Communicator, arena: Arena) -> None:
        self._rows = torch.nonzero(local.mask("train")).squeeze(1)
        self._labels = local.labels[self._rows]
        self._multi_label, self._arena = local.multi_label, arena
        self.num_train = int(comm.total(torch.tensor([len(self._rows)]), "plan"))
        if self.num_train == 0:
            error = GraphError(
                "the training split is empty: no node is marked train and labelled; give the graph a split when "
                "importing it (--train FRACTION, or a split file)"
            )
            error.everywhere = True
            raise error

    def local_loss(self, logits: torch.Tensor) -> torch.Tensor:
        """This rank's share of the mean loss: a scalar of the logits' dtype; the shares of all ranks add up to the
        loss.

        logits: (n_p, C) of own nodes, or of the own training nodes alone.
        """
        rows = None if len(logits) == len(self._rows) else self._rows
        if self._multi_label:
            selected = logits if rows is None else logits.index_select(0, rows)
            total = F.binary_cross_entropy_with_logits(selected, self._labels.to(selected.dtype), reduction="sum")
            return total / (self.num_train * logits.shape[1])
        return cross_entropy(logits, rows, self._labels, self._arena) / self.num_train
