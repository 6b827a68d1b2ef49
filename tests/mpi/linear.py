"""Linear aggregation over ranks held against the dense oracle, output and gradient, element by element."""

import numpy as np
import oracle
import torch
from asking import aggregate

from .gathering import whole

NORMS = ("sum", "mean", "sym")
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def check_linear(comm, graph, local, policy, *, width=3, dtype=torch.float64, self_loops="keep", norms=NORMS):
    """Compare A x and Aᵀ g of random x and g (n, width) with the oracle's, for every norm. Collective."""
    random = np.random.default_rng(width)
    x, g = random.standard_normal((2, graph.num_nodes, width))
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, self_loops)
    for norm in norms:
        matrix = oracle.operator(a, norm)
        mine = torch.from_numpy(x[local.original_id.numpy()]).to(dtype).requires_grad_()
        y = aggregate(policy, mine, norm)
        y.backward(torch.from_numpy(g[local.original_id.numpy()]).to(dtype))
        tolerance = TOLERANCE[dtype] * max(1.0, np.abs(matrix).sum(1).max(), np.abs(matrix).sum(0).max())
        np.testing.assert_allclose(whole(comm, local, y), matrix @ x, rtol=0, atol=tolerance, err_msg=f"output, {norm}")
        np.testing.assert_allclose(
            whole(comm, local, mine.grad), matrix.T @ g, rtol=0, atol=tolerance, err_msg=f"gradient, {norm}"
        )
