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

from ..gathering import whole
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
        index = torch.from_numpy(dst)[:, None].expand(-1, WIDTH)
        right = torch.full_like(x, -torch.inf).scatter_reduce(0, index, x[src], "amax")
        right = torch.where(right == -torch.inf, 0.0, right)
        (expected,) = torch.autograd.grad(right, x, gy)
        local = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops=self_loops)
        buffers = HaloBuffers(4 * rows * 2 * WIDTH * 8)
        mine = x.detach()[local.original_id].requires_grad_()
        y = largest(FullHalo(local, comm, buffers), mine)
        y.backward(gy[local.original_id])
        np.testing.assert_array_equal(whole(comm, local, y), right.detach())
        np.testing.assert_allclose(whole(comm, local, mine.grad), expected, rtol=0, atol=1e-12)
        assert buffers.nbytes <= buffers.limit


def test_bytes(comm, session_path):
    """F numbers for a halo row forwards, 2F backwards; nothing refetched, nothing pushed back."""
    graph, where, file = stored(comm, session_path, "random directed")
    local = graphs.load(file, where.maps["dealt"], comm, cap=7)
    policy = FullHalo(local, comm, HaloBuffers(4 * 7 * 2 * WIDTH * 8))
    comm.ledger.take()
    largest(policy, torch.rand(local.num_owned, WIDTH, dtype=torch.float64, requires_grad=True)).sum().backward()
    traffic = comm.ledger.take()
    forward, backward = (
        traffic[kind].bytes_sent if kind in traffic else 0 for kind in ("halo_forward", "halo_backward")
    )
    assert forward == 8 * WIDTH * local.inward.plan.num_boundary
    assert backward == 8 * 2 * WIDTH * local.outward.plan.num_boundary
