"""Consequences of a graph's splits: without validation nodes no epoch is the best, and no patience can run out."""

import logging
from collections.abc import Mapping

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.labels import LABELS
from hpcgnn.graphfile.storage import SPLITS, GraphFile

log = logging.getLogger("hpcgnn")
_CHUNK = 1 << 22


def check_splits(counts: Mapping[str, int], config: Config, rank: int, judged: str = "nodes") -> None:
    """Warn once if validation or test nodes are missing.

    Args:
        counts: {split: nodes with a label, over all ranks}.
        config: the configuration.
        rank: this rank; rank 0 logs.
        judged: the objects of the metrics, 'nodes' by default.

    Raises:
        ConfigError: on all ranks, if --patience would wait for a metric that never comes.
    """
    if not counts["val"]:
        check_patience(config, judged)
    if rank == 0 and config.run.eval_every:
        if not counts["val"]:
            log.warning(
                "the graph has no validation %s: no best epoch can be chosen, and the test metric in the result "
                "is that after the last epoch",
                judged,
            )
        if not counts["test"]:
            log.warning("the graph has no test %s: there will be no test metric", judged)


def check_patience(config: Config, judged: str = "nodes") -> None:
    """Raise ConfigError, for a graph without validation nodes (or edges), if --patience is given."""
    if config.optim.patience:
        remedy = "import the graph with a validation split"
        if judged == "edges":
            remedy = "give validation edges a share in --link-split"
        error = ConfigError(
            f"--patience {config.optim.patience}: expected a graph with validation {judged}, and "
            f"{config.data.graph} has none; leave --patience out, or {remedy}"
        )
        error.everywhere = True
        raise error


def has_nodes(file: GraphFile, split: str) -> bool:
    """Whether any node of a graph file is in a split and has a label. Holds some millions of nodes at a time."""
    for start in range(0, file.meta.num_nodes, _CHUNK):
        piece = [(start, min(start + _CHUNK, file.meta.num_nodes))]
        found = file.read("nodes/split", piece) == SPLITS[split]
        if found.any() and LABELS[file.meta.task].labelled(file.read("nodes/labels", piece)[found]).any():
            return True
    return False
