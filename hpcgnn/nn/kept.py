"""The aggregate of the features that is kept for a whole run."""

import logging
import math

import torch

from hpcgnn.errors import GraphError
from hpcgnn.nn.graph import Graph
from hpcgnn.ops.inputs import Matrix

log = logging.getLogger("hpcgnn")
# Rows that are rounded at a time: copies of them in float64 are small.
_FEW = 128


def kept(graph: Graph, aggregate: Matrix, dtype: torch.dtype) -> Matrix:
    """Rows that are kept for the whole run, rounded to a type. The log has the error. Collective.

    Raises:
        GraphError: on all ranks, if a number is too large for the type.
    """
    if aggregate.dtype == dtype or not isinstance(aggregate, torch.Tensor):
        return aggregate.to(dtype)
    out, sums = graph.arena.empty(*aggregate.shape, dtype=dtype), torch.zeros(2, dtype=torch.float64)
    for exact, rounded in zip(aggregate.split(_FEW), out.split(_FEW), strict=True):
        error = rounded.copy_(exact).double() - exact
        sums += torch.stack([error.square().sum(), exact.double().square().sum()])
    lost, size = graph.total(sums).tolist()
    if not math.isfinite(lost):
        raise GraphError.on_all(
            f"the kept aggregate has numbers that {dtype} does not hold; expected "
            "--set model.keep_input_dtype=bf16, or auto"
        )
    log.info("kept aggregate: %s, with a relative error of %.1e", dtype, math.sqrt(lost / (size or 1)))
    return out
