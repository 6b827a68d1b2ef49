"""The largest of the neighbours over ranks against autograd over a list of all edges: outputs, gradients with ties."""

import graphs
import numpy as np
import pytest
import torch
from asking import largest

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways, check_rows
from ..nn import formulas
from ..small import GRAPHS, edges_of, stored

WIDTH = 5


@pytest.mark.parametrize("name", GRAPHS)
def test_against_the_oracle(comm, session_path, name):
    graph, where, file = stored(comm, session_path, name)
    random = np.random.default_rng(1)
    x = torch.from_numpy(random.integers(-3, 3, (graph.num_nodes, WIDTH)).astype(float)).requires_grad_()  # many ties
    gy = torch.from_numpy(random.standard_normal((graph.num_nodes, WIDTH)))
    for map_name, rows, self_loops in (("dealt", 1000, "keep"), ("one empty", 1, "add"), ("random", 5, "keep")):
        src, dst = edges_of(graph, self_loops)
        right = formulas.largest(x[src], torch.from_numpy(dst), graph.num_nodes)
        (expected,) = torch.autograd.grad(right, x, gy)
        local = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops=self_loops)
        buffers = HaloBuffers(4 * rows * 2 * WIDTH * 8)
        policy = FullHalo(local, comm, buffers)
        y, gradient, _ = both_ways(comm, local, lambda rows: largest(policy, rows), x, gy)
        check_rows(comm, local, y, right.detach(), 0)
        check_rows(comm, local, gradient, expected, 1e-12)
        assert buffers.nbytes <= buffers.limit
