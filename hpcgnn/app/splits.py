"""Consequences of a graph's splits: without validation nodes no epoch is the best, and no patience can run out."""

import logging
from collections.abc import Mapping

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError

log = logging.getLogger("hpcgnn")


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
        error = ConfigError(
            f"--patience {config.optim.patience}: expected a graph with validation {judged}, and "
            f"{config.data.graph} has none; leave --patience out, or give it a validation split"
        )
        error.everywhere = True
        raise error
