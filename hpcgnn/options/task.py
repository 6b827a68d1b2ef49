"""What is learned, from what: the task, its inputs, its loss, and in which units."""

from dataclasses import dataclass

from hpcgnn.declaring import option


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    task: str = option(
        "auto",
        "what is learned of nodes: one class, several 0/1 labels, or real numbers; auto takes what the labels of the "
        "graph file are, and any other choice makes sure that they are that",
        choices=("auto", "classification", "multilabel", "regression"),
    )
    features: str = option(
        "file",
        "what nodes have as input: file, the features of the graph file; none, a column of ones; degree, that column "
        "and log(1 + in-degree); learned:D, D columns that are learned, a row for each node; or several joined by +, "
        "such as file+learned:32 or degree+learned:64",
    )
    loss: str = option(
        "auto",
        "what is minimised: cross-entropy (classification and multilabel); mse, mae or huber (beyond an error of 1 "
        "the absolute error), of targets as --target-scale makes them (regression); auto is the first",
        choices=("auto", "cross-entropy", "mse", "mae", "huber"),
    )
    target_scale: str = option(
        "standard",
        "regression: learn targets less their mean, divided by their deviation, both of the training nodes, or learn "
        "them as they are; metrics and predictions are in the units of the file either way",
        choices=("standard", "none"),
        on_resume="same",
    )
    label_smoothing: float = option(
        0.0,
        "classification: the part of each label that the loss spreads over all classes alike, as torch's "
        "cross-entropy does; 0.1 is usual",
        least=0.0,
        below=1.0,
    )
    class_weights: str = option(
        "none",
        "classification: how much a training node counts in the loss: all alike, or balanced, in inverse proportion to "
        "the number of training nodes of its class, with a mean of 1",
        choices=("none", "balanced"),
    )
    label_reuse: float = option(
        0.0,
        "classification and multilabel: labels as inputs. In each epoch this share of the training nodes, drawn anew, "
        "have their labels appended to their features, and the loss is taken on the others; evaluation gives the "
        "labels of all training nodes. 0.5 is usual, 0 gives none",
        least=0.0,
        below=1.0,
        on_resume="same",
    )
