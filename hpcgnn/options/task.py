"""What is learned, from what: the task, its inputs, its loss, and in which units."""

from dataclasses import dataclass

from hpcgnn.declaring import option
from hpcgnn.options.link_split import AUTO

#: The task that is learned from edges, and from no labels.
LINKS = "links"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    task: str = option(
        "auto",
        "what is learned of nodes: one class, several 0/1 labels, or real numbers; auto takes what the labels of the "
        "graph file are, and any of these makes sure that they are that. Or links: which pairs of nodes have an edge; "
        "some edges are held out for it, labels are not needed, and what comes out is an embedding of each node with "
        "--hidden numbers",
        choices=("auto", "classification", "multilabel", "regression", LINKS),
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
        "what is minimised: cross-entropy (classification, multilabel and links); mse, mae or huber (beyond an error "
        "of 1 the absolute error), of targets as --target-scale makes them (regression); auto is the first",
        choices=("auto", "cross-entropy", "mse", "mae", "huber"),
    )
    target_scale: str = option(
        "standard",
        "regression: learn targets less their mean, divided by their deviation, both of the training nodes, or learn "
        "them as they are; metrics and predictions are in the units of the file either way",
        choices=("standard", "none"),
        on_resume="same",
    )
    scorer: str = option(
        "dot",
        "links: how a pair of embeddings becomes a score: dot, their product; distmult, that with a learned weight for "
        "each column; mlp, two layers of --hidden units over their product by columns",
        choices=("dot", "distmult", "mlp"),
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    link_split: str = option(
        AUTO,
        "links: which edges are held out: given, those that come with the graph file, whose own edges are then all for "
        "training; or shares of its edges for training, validation and test, such as 0.9/0.05/0.05, drawn by --seed "
        "and the ids of both ends; auto is given where the file has any, else these shares. Messages travel along "
        "training edges alone",
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    negatives: int = option(
        1,
        "links: nodes that are drawn for every training edge in place of its source, anew in every epoch",
        least=1,
        most=1024,
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    negative_pool: int = option(
        4096,
        "links: different nodes that these are drawn from in an epoch; every rank holds the embeddings of all of them",
        least=1,
        most=1 << 16,
        on_resume="same",
        needs={"task": (LINKS,)},
    )
    link_negatives: int = option(
        1000,
        "links: different nodes that the source of every validation and test edge is ranked among, drawn once by "
        "--seed; all nodes where the graph has no more. Not where negatives come with the file",
        least=1,
        most=1 << 16,
        on_resume="same",
        needs={"task": (LINKS,)},
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
