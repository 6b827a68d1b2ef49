"""Options of the task: its labels, inputs, loss and units."""

from dataclasses import dataclass

from hpcgnn.option_fields import option


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    task: str = option(
        "auto",
        "what is learned: classes, labels or numbers of nodes, or links",
        details="auto: by the labels of the graph file. Any other name of a node task is compared with them.",
        flag=True,
        choices="tasks",
    )
    features: str = option(
        "file",
        "inputs: file, none, degree, edges, learned:D, or several joined by +",
        details="Example: file+learned:32 (docs/models.md).",
    )
    edge_features: str = option(
        "file",
        "edge inputs of models that read them: the file's, or none",
        details="For gine, gat, gatv2, transformer, pna, meshgraphnet and plugins.",
        choices=("file", "none"),
    )
    loss: str = option(
        "auto",
        "loss",
        details="auto: the first of each task (docs/models.md). huber: absolute beyond an error of 1.",
        choices="losses",
    )
    target_scale: str = option(
        "standard",
        "regression: standardise targets, or learn them unchanged",
        details="Metrics and predictions are in the units of the file.",
        choices=("standard", "none"),
        on_resume="same",
    )
