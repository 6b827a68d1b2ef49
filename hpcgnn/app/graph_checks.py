"""Checks of the loaded graph before training: edge weights that sum to less than 0, and splits that are empty.

A warning at the start explains the effect, or an error refuses the graph (graph/blocks.py). Without validation nodes no
epoch is the best, and no patience can run out.
"""

import logging
from collections.abc import Mapping

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec

log = logging.getLogger("hpcgnn")


def check_weights(local: LocalGraph, spec: ModelSpec, comm: Communicator) -> None:
    """Raise GraphError, on all ranks, where weights of edges sum to less than 0 and the model takes the root of such
    sums. Collective if there are weights.
    """
    model = spec.options.model
    if not spec.weighted or MODELS[model].divisor(spec) != "sym":
        return
    below = (local.inward.degree < 0) | (local.outward.degree < 0)
    if count := int(comm.total(below.sum().view(1), "plan")):
        raise GraphError.on_all(
            f"the edge weights of {count:,} nodes sum to less than 0, and {model} divides by the root of that "
            "sum: expected sums above 0; make the weights positive, or use --model sage or gin"
        )


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
    if not counts["val"] and config.optim.patience:
        raise ConfigError.on_all(
            f"--patience {config.optim.patience}: expected a graph with validation {judged}, and "
            f"{config.data.graph} has none; leave --patience out, or give it a validation split"
        )
    if rank == 0 and config.run.eval_every:
        if not counts["val"]:
            log.warning(
                "the graph has no validation %s: no best epoch can be chosen, and the test metric in the result "
                "is that after the last epoch",
                judged,
            )
        if not counts["test"]:
            log.warning("the graph has no test %s: there will be no test metric", judged)
