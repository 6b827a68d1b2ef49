"""Options of the task: its labels, inputs, loss and units."""

from dataclasses import dataclass

from hpcgnn.declaring import option
from hpcgnn.options.link_split import AUTO, check_link_split

#: The task that is learned from edges, and from no labels.
LINKS = "links"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    task: str = option(
        "auto",
        "task: classes, labels or numbers of nodes, or links between nodes",
        details="auto: by the labels of the graph file. Any other name of a node task is compared with them. links: "
        "some edges are held out, labels are not needed, and each node gets an embedding of --hidden numbers.",
        flag=True,
        choices="tasks",
    )
    features: str = option(
        "file",
        "inputs: file, none, degree, edges, learned:D, or several joined by +",
        details="file: the features of the graph file. none: a column of ones. degree: that column and log(1 + "
        "in-degree). edges: the mean of the features of a node's in-edges. learned:D: D learned columns for each node. "
        "Example: file+learned:32.",
    )
    edge_features: str = option(
        "file",
        "edge inputs of models that read them: the file's, or none",
        details="For gine, gat, gatv2, transformer, pna and plugins.",
        choices=("file", "none"),
    )
    loss: str = option(
        "auto",
        "loss",
        details="auto: the first of each task. Classification, multilabel and links: cross-entropy. Regression: mse, "
        "mae, or huber (absolute beyond an error of 1), of targets on their --target-scale.",
        choices="losses",
    )
    target_scale: str = option(
        "standard",
        "regression: standardise targets, or learn them unchanged",
        details="The training nodes have the mean and the deviation. Metrics and predictions are in the units of the "
        "file.",
        choices=("standard", "none"),
        on_resume="same",
    )
    scorer: str = option(
        "dot",
        "links: score of a pair of embeddings",
        details="dot: their product. distmult: the product with a learned weight for each column. mlp: two layers of "
        "--hidden units over the products by column.",
        choices=("dot", "distmult", "mlp"),
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    link_split: str = option(
        AUTO,
        "links: held-out edges of the file, or shares as 0.9/0.05/0.05",
        details="given: the held-out edges of the graph file; its own edges are then all for training. Shares: "
        "training, validation and test edges, drawn by --seed and the ids of both ends. auto: given if the "
        "file has held-out edges, else 0.9/0.05/0.05. Messages use training edges alone.",
        check=check_link_split,
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    negatives: int = option(
        1,
        "links: drawn negative sources of every training edge",
        details="They are drawn anew in every epoch.",
        least=1,
        most=1024,
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    negative_pool: int = option(
        4096,
        "links: pool of nodes for negatives in an epoch",
        details="Every rank holds the embeddings of the pool.",
        least=1,
        most=1 << 16,
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    link_negatives: int = option(
        1000,
        "links: nodes among which held-out edges are ranked",
        details="Drawn once by --seed; all nodes of a smaller graph. Unused if the file has negatives.",
        least=1,
        most=1 << 16,
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    label_smoothing: float = option(
        0.0,
        "classification: share of a label spread over all classes",
        details="As in torch's cross-entropy; 0.1 is usual.",
        least=0.0,
        below=1.0,
    )
    class_weights: str = option(
        "none",
        "classification: equal weights, or inverse to the class's size",
        details="balanced: in inverse proportion to the training nodes of the class, with a mean of 1.",
        choices=("none", "balanced"),
    )
