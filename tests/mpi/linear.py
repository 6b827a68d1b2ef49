"""Linear aggregation over ranks held against the dense oracle, output and gradient, element by element."""

import numpy as np
import oracle
import torch
from asking import aggregate

from .gathering import both_ways, check_rows

NORMS = ("sum", "mean", "sym")
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def check_linear(comm, graph, local, policy, *, width=3, dtype=torch.float64, self_loops="keep", norms=NORMS):
    """Compare A x and Aᵀ g of random x and g (n, width) with the oracle's, for every norm.

    Returns the kinds of messages sent. Collective.
    """
    random = np.random.default_rng(width)
    x, g = random.standard_normal((2, graph.num_nodes, width))
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, self_loops)
    kinds = set()
    for norm in norms:
        matrix = oracle.operator(a, norm)
        y, gradient, traffic = both_ways(
            comm,
            local,
            lambda rows: aggregate(policy, rows, norm),
            torch.from_numpy(x).to(dtype),
            torch.from_numpy(g).to(dtype),
        )
        tolerance = TOLERANCE[dtype] * max(1.0, np.abs(matrix).sum(1).max(), np.abs(matrix).sum(0).max())
        check_rows(comm, local, y, matrix @ x, tolerance)
        check_rows(comm, local, gradient, matrix.T @ g, tolerance)
        kinds |= {kind for kind, entry in traffic.items() if entry.messages}
    return kinds
