"""Labels on their way into the file: one class per node, or several 0/1 columns.

A column of numbers has no declared meaning. The largest class decides the number of a model's outputs. So a column of
prices, years or identifiers must be an error here, not a model of a million outputs.
"""

from collections.abc import Sequence

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.label_files import CLASSIFICATION, MULTILABEL, REGRESSION
from hpcgnn.graphfile.schema import SPLITS
from partition_tools.graph.raw import DataError

MOST_LABEL = 2**31 - 2
# So many classes are never too many, however few of them have members.
FEW_CLASSES = 16


def canonical_labels(
    labels: np.ndarray | None,
    n: int,
    split: np.ndarray,
    num_classes: int | None = None,
    names: Sequence[str] = (),
    task: str = "auto",
) -> tuple[np.ndarray, int]:
    """(labels, number of classes): int64 (n,) with -1 for none, or uint8 (n, C) for several 0/1 columns.

    num_classes: as stated, or None to count; names: of the classes, or empty; task: CLASSIFICATION or MULTILABEL where
    labels of another one are an error. Raises GraphError naming the first node
    whose label is wrong, and for labels that are probably no classes unless num_classes is stated.
    """
    if num_classes is not None and not 0 <= num_classes <= MOST_LABEL:
        raise GraphError(f"the number of classes must be from 1 to {MOST_LABEL}, got {num_classes}")
    if names and num_classes not in (None, 0, len(names)):
        raise GraphError(
            f"{num_classes} classes were stated, but the labels have the names of {len(names)} "
            f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})"
        )
    if labels is None:
        return np.full(n, -1, np.int64), num_classes or len(names)
    labels = numbers_of_nodes(labels, n, "label")
    missing = _missing(labels)
    several = labels.ndim == 2
    if (task == MULTILABEL and not several) or (task == CLASSIFICATION and several):
        wanted = "several columns of 0 and 1" if task == MULTILABEL else "one column of classes"
        raise GraphError(f"labels.task={task}: expected {wanted}, got labels of shape {labels.shape}")
    if several:
        return _multi_label(labels, missing, split, num_classes or len(names) or None)
    whole = np.where(missing, -1, labels)
    # The file's reader takes so many classes at most; a column of larger numbers holds no classes.
    strange = (whole != np.rint(whole)) | (whole > MOST_LABEL) | (whole < -MOST_LABEL)
    if strange.any():
        node = int(np.argmax(strange))
        raise DataError(
            node,
            f"has label {labels[node]}{_regression(labels)}; expected whole numbers (classes from 0, -1 for none)",
            "labels",
        )
    whole = whole.astype(np.int64)
    classes = num_classes or len(names) or int(whole.max(initial=-1)) + 1
    if not num_classes and not names:
        _check_class_count(whole, classes)
    wrong = (whole < -1) | (whole >= classes)
    if wrong.any():
        node = int(np.argmax(wrong))
        raise DataError(node, f"has label {whole[node]}, outside the classes 0..{classes - 1} (-1 for none)", "labels")
    no_label_in_split((whole < 0) & (split > 0), split)
    return whole, classes


def _regression(labels: np.ndarray) -> str:
    """A remark on real numbers, which are targets of another kind of task."""
    if labels.dtype.kind == "f" and (np.isfinite(labels) & (labels != np.rint(labels))).any():
        return "; real numbers to predict are imported with --set labels.task=regression"
    return ""


def _check_class_count(labels: np.ndarray, classes: int) -> None:
    """GraphError where most classes would have no member, as with identifiers, years or prices in place of classes."""
    if classes <= FEW_CLASSES:
        return
    members = np.unique(labels[labels >= 0])
    if classes > 2 * len(members):
        raise DataError(
            int(np.argmax(labels)),
            f"has label {classes - 1} of {classes:,} classes, of which {len(members):,} have a member (the smallest is "
            f"{members[0]}); numbers to predict need --set labels.task=regression, names of classes need words, and "
            f"classes like these --set labels.classes={classes}",
            "labels",
        )


def _missing(labels: np.ndarray) -> np.ndarray:
    """Where an array of numbers has none: NaN."""
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(labels.shape, bool)


def _multi_label(
    labels: np.ndarray, missing: np.ndarray, split: np.ndarray, num_classes: int | None
) -> tuple[np.ndarray, int]:
    if num_classes not in (None, labels.shape[1]):
        raise GraphError(f"the labels have {labels.shape[1]} columns but {num_classes} classes were stated or named")
    wrong = (labels != 0) & (labels != 1) & ~missing
    if wrong.any():
        node, column = np.argwhere(wrong)[0].tolist()
        raise DataError(
            node,
            f"has a label that is neither 0 nor 1{_regression(labels)}; several label columns mean a multi-label task "
            "of 0/1 columns",
            "labels",
            column,
        )
    partly = missing.any(axis=1) & ~missing.all(axis=1)
    if partly.any():
        node = int(np.argmax(partly))
        raise DataError(
            node,
            f"has some of its labels and NaN for others ({np.count_nonzero(partly)} such nodes); write 0 for what it "
            "is not, or NaN for all where its labels are not known",
            "labels",
            int(np.argmax(missing[node])),
        )
    no_label_in_split(missing.all(axis=1) & (split > 0), split)
    return np.where(missing, 0, labels).astype(np.uint8), labels.shape[1]


def numbers_of_nodes(given: np.ndarray, n: int, what: str) -> np.ndarray:
    """Numbers (n,), or (n, C) of several columns. what: a word for one of them. Raises GraphError for anything else."""
    given = np.asarray(given)
    if given.ndim not in (1, 2) or len(given) != n or 0 in given.shape:
        raise GraphError(f"expected one {what} (or one row of {what}s) for each of {n} nodes, got shape {given.shape}")
    if given.dtype.kind not in "iufb":
        raise GraphError(f"{what}s must be numbers, got {given.dtype}")
    return given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given


def no_label_in_split(wrong: np.ndarray, split: np.ndarray) -> None:
    """GraphError if any node is wrong (n,): in a split without a label."""
    if wrong.any():
        node = int(np.argmax(wrong))
        name = {value: name for name, value in SPLITS.items()}[int(split[node])]
        raise DataError(
            node,
            f"is in the {name} split but has no label ({np.count_nonzero(wrong)} such nodes); take it out of the split "
            "or give it a label",
            "labels",
        )


def labelled_nodes(labels: np.ndarray | None, n: int, task: str = "auto") -> np.ndarray:
    """The nodes that have a label for the task; all, if that cannot be decided: later checks find the faults of
    labels.
    """
    labels = None if labels is None else np.asarray(labels)
    if labels is None or labels.ndim not in (1, 2) or len(labels) != n or labels.dtype.kind not in "iufb":
        return np.arange(n)
    missing = _missing(labels)
    if task == REGRESSION:
        return np.flatnonzero(~missing.reshape(n, -1).all(axis=1))
    if labels.ndim == 1 or labels.shape[1] == 1:
        missing |= labels == -1
    return np.flatnonzero(~missing.reshape(n, -1).any(axis=1))
