"""Edge weights with a sum of zero or less: a warning at the start explains the effect, or an error refuses them (see
graph/sums.py).
"""

import logging

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import GraphError
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.relations import odd_relations
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec

log = logging.getLogger("hpcgnn")


def check_weights(local: LocalGraph, spec: ModelSpec, comm: Communicator) -> None:
    """One line where weights of the graph sum to 0 or less and the model divides by such sums. Collective if there are
    weights.

    Raises GraphError on all ranks where the model takes the root of a sum below 0.
    """
    divides = MODELS[spec.model].divisor(spec) if spec.weighted else ""
    if not divides:
        return
    if divides == "relation":
        counts = odd_relations(local, spec.edge_types + spec.loop_relation)
    else:
        directions = [local.inward]
        if divides == "sym" and local.outward is not local.inward:
            directions.append(local.outward)
        odd = [_odd(adjacency) for adjacency in directions]
        counts = torch.stack([torch.stack(each).any(0).sum() for each in zip(*odd, strict=True)])
    below, zero = (int(count) for count in comm.total(counts.double(), "plan"))
    what = "pairs of a node and a relation" if divides == "relation" else "nodes"
    if divides == "sym" and below:
        error = GraphError(
            f"the edge weights of {below:,} nodes sum to less than 0, and {spec.model} divides by the root of that "
            "sum: expected sums above 0; make the weights positive, or use --model sage or gin"
        )
        error.everywhere = True
        raise error
    if comm.rank == 0 and (below or zero):
        nothing = "aggregate" if divides == "sym" else "mean"
        log.warning(
            "edge weights sum to 0 at %s %s, whose %s is 0, and to less than 0 at %s, where Σwx/Σw is no average",
            f"{zero:,}",
            what,
            nothing,
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
