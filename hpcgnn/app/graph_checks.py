"""Checks of the loaded graph before training: edge weights that sum to 0 or less, and splits that are empty.

A warning at the start explains the effect, or an error refuses the graph (graph/blocks.py). Without validation nodes no
epoch is the best, and no patience can run out.
"""

import logging
from collections.abc import Mapping

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec

log = logging.getLogger("hpcgnn")


def check_weights(local: LocalGraph, spec: ModelSpec, comm: Communicator) -> None:
    """One line where weights of the graph sum to 0 or less and the model divides by such sums. Collective if there are
    weights.

    Raises GraphError on all ranks where the model takes the root of a sum below 0.
    """
    model = spec.options.model
    divides = MODELS[model].divisor(spec) if spec.weighted else ""
    if divides not in ("sym", "mean"):
        return
    directions = [local.inward]
    if divides == "sym" and local.outward is not local.inward:
        directions.append(local.outward)
    odd = [_odd(adjacency) for adjacency in directions]
    counts = torch.stack([torch.stack(each).any(0).sum() for each in zip(*odd, strict=True)])
    below, zero = (int(count) for count in comm.total(counts.double(), "plan"))
    if divides == "sym" and below:
        raise GraphError.on_all(
            f"the edge weights of {below:,} nodes sum to less than 0, and {model} divides by the root of that "
            "sum: expected sums above 0; make the weights positive, or use --model sage or gin"
        )
    if comm.rank == 0 and (below or zero):
        log.warning(
            "edge weights sum to 0 at %s nodes, whose %s is 0, and to less than 0 at %s, where Σwx/Σw is no average",
            f"{zero:,}",
            "aggregate" if divides == "sym" else "mean",
            f"{below:,}",
        )


def _odd(adjacency: Adjacency) -> tuple[torch.Tensor, torch.Tensor]:
    """(bool (m,): whether the sum of each row's weights is below 0; likewise, whether it is 0 though there are
    edges).
    """
    edges = torch.zeros(len(adjacency.degree), dtype=torch.int64)
    for block in (adjacency.own, *adjacency.halo):
        counts = torch.diff(block.indptr)
        if block.rows is None:
            edges += counts
        else:
            edges[block.rows.long()] += counts
    return adjacency.degree < 0, (adjacency.degree == 0) & (edges > 0)


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
        raise ConfigError.on_all(
            f"--patience {config.optim.patience}: expected a graph with validation {judged}, and "
            f"{config.data.graph} has none; leave --patience out, or give it a validation split"
        )
