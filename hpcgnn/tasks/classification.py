"""One class per node: cross-entropy, and the accuracy of the class with the largest logit."""

from functools import partial

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.cross_entropy import cross_entropy
from hpcgnn.tasks.base import LabelTask, Metric, Scale
from hpcgnn.tasks.counting import ratio


def accuracy(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, comm: Communicator) -> float:
    """The share of nodes whose largest logit is their label. logits (n_p, C), labels int64 (n_p,), mask bool (n_p,)."""
    correct = (logits[mask].argmax(1) == labels[mask]).sum() if mask.any() else torch.tensor(0)
    counts = comm.total(torch.stack([correct, mask.sum()]).to(torch.int64))
    return ratio(counts[0], counts[1])


class Classification(LabelTask):
    """A LabelTask. Labels: int64 (n_p,), -1 for none."""

    name, said, outputs = "classification", "one class per node", "classes"
    losses = ("cross-entropy",)
    probabilities = staticmethod(partial(torch.softmax, dim=1))
    metrics = {"accuracy": Metric(accuracy, "no node has a class")}

    def weight(self, labels: torch.Tensor) -> int:
        return len(labels)

    def targets(self, labels: torch.Tensor, scale: Scale | None) -> torch.Tensor:
        return labels

    def loss(
        self, outputs: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, name: str, arena: Arena
    ) -> torch.Tensor:
        return cross_entropy(outputs, rows, targets, arena)

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.argmax(1, keepdim=True).to(torch.int32)

    def columns(self, outputs: int) -> list[str]:
        return ["class"]

    def blank(self, nodes: int, outputs: int) -> torch.Tensor:
        return torch.zeros(nodes, dtype=torch.int64)
