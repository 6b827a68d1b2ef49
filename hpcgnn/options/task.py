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
    edge_features: str = option(
        "file",
        "what edges have as input, in models that read it (gine, gat, gatv2, transformer, pna, plugins): file, the "
        "edge features of the graph file if it has any; or none",
        choices=("file", "none"),
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
