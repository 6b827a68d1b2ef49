"""The largest of the neighbours over ranks against autograd over a list of all edges: outputs, gradients with ties,
bytes.
"""

import graphs
import numpy as np
import pytest
import torch
from asking import largest

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways, check_rows, sent_both_ways
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


def test_bytes(comm, session_path):
    """F numbers for a halo row forwards, 2F backwards; nothing refetched, nothing pushed back."""
    graph, where, file = stored(comm, session_path, "random directed")
    local = graphs.load(file, where.maps["dealt"], comm, cap=7)
    policy = FullHalo(local, comm, HaloBuffers(4 * 7 * 2 * WIDTH * 8))
    comm.ledger.take()
    largest(policy, torch.rand(local.num_owned, WIDTH, dtype=torch.float64, requires_grad=True)).sum().backward()
    forward, backward = 8 * WIDTH * local.inward.plan.num_boundary, 8 * 2 * WIDTH * local.outward.plan.num_boundary
    assert sent_both_ways(comm.ledger.take()) == [forward, backward]
