"""The kinds of labels in a graph file, one for each task: their storage, the labelled nodes, and invalid values.

All code that reads or checks labels asks the kind. So a new kind is a class here, and no other change below training.
The room `tasks` decides how a model learns from them.
"""

from typing import Any

import numpy as np

CLASSIFICATION, MULTILABEL, REGRESSION = "classification", "multilabel", "regression"


class LabelKind:
    """A kind of labels.

    Attributes:
        storage: kinds of numpy types that the file may have.
        said: the labels in words.
        none: the file's value of an unlabelled node.
    """

    storage: str = "iu"
    said: str
    none: Any = -1

    def shape(self, nodes: int, outputs: int) -> tuple[int, ...]:
        """Of the dataset. outputs: classes, labels or targets, `num_classes` of the file."""
        return (nodes, outputs)

    def fault(self, labels: np.ndarray, outputs: int) -> str:
        """Describe an error in some nodes' stored labels; '' for none."""
        raise NotImplementedError

    def labelled(self, labels: Any) -> Any:
        """bool (n,): which nodes have a label. labels: array or tensor, as the file or as a rank has them."""
        raise NotImplementedError

    def loaded(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the file as a rank keeps them."""
        raise NotImplementedError

    def unlabelled(self, nodes: int, outputs: int) -> np.ndarray:
        """A rank's labels for `nodes` unlabelled nodes."""
        return self.loaded(np.full(self.shape(nodes, outputs), self.none))


class Classes(LabelKind):
    """One class for a node: int (n,), -1 for none; a rank has int64 (n_p,)."""

    said = "classes"

    def shape(self, nodes: int, outputs: int) -> tuple[int, ...]:
        return (nodes,)

    def fault(self, labels: np.ndarray, outputs: int) -> str:
        if labels.ndim == 1 and (not len(labels) or -1 <= labels.min() <= labels.max() < outputs):
            return ""
        return (
            f"labels leave the classes: expected 0..{outputs - 1} (or -1 for none), got {labels.min()}..{labels.max()}"
        )

    def labelled(self, labels: Any) -> Any:
        return labels >= 0

    def loaded(self, labels: np.ndarray) -> np.ndarray:
        return labels.astype(np.int64)


class LabelSets(LabelKind):
    """Any number of labels for a node: 0/1 (n, C), every node has them; a rank has float32 (n_p, C)."""

    said = "0/1 labels"

    def fault(self, labels: np.ndarray, outputs: int) -> str:
        right = labels.ndim == 2 and labels.shape[1] == outputs
        if right and (not labels.size or 0 <= labels.min() <= labels.max() <= 1):
            return ""
        return f"expected 0/1 labels of shape (n, {outputs}), got shape {labels.shape}"

    def labelled(self, labels: Any) -> Any:
        return labels[:, 0] >= 0

    def loaded(self, labels: np.ndarray) -> np.ndarray:
        return labels.astype(np.float32)


class Targets(LabelKind):
    """One or several real numbers per node: float (n,) or (n, T), NaN for unknown ones; a rank has (n_p, T) of this
    type.
    """

    storage, said, none = "f", "real numbers", np.float32(np.nan)

    def shape(self, nodes: int, outputs: int) -> tuple[int, ...]:
        return (nodes,) if outputs == 1 else (nodes, outputs)

    def fault(self, labels: np.ndarray, outputs: int) -> str:
        if labels.shape != self.shape(len(labels), outputs):
            return f"expected {outputs} real numbers for each node, got shape {labels.shape}"
        return "targets are infinite: expected finite numbers, or NaN for none" if np.isinf(labels).any() else ""

    def labelled(self, labels: Any) -> Any:
        known = labels == labels
        return known if known.ndim == 1 else known.any(1)

    def loaded(self, labels: np.ndarray) -> np.ndarray:
        return labels[:, None] if labels.ndim == 1 else labels


LABELS: dict[str, LabelKind] = {CLASSIFICATION: Classes(), MULTILABEL: LabelSets(), REGRESSION: Targets()}


def task_of(labels: np.ndarray) -> str:
    """The task whose labels are stored in this way."""
    if labels.dtype.kind == "f":
        return REGRESSION
    return MULTILABEL if labels.ndim == 2 else CLASSIFICATION
