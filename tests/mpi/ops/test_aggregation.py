"""Linear aggregation over ranks against the dense oracle, outputs and gradients element by element."""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import whole
from ..linear import check_linear


def check(comm, stored, map_name, dtype, halo_buffer, self_loops):
    """Compare A x and A^T g with the oracle for one configuration, and see that the buffers kept to their limit."""
    (graph, where, file), buffers = stored, HaloBuffers(halo_buffer)
    cap = max(1, buffers.cap(3 * dtype.itemsize))
    local = graphs.load(file, where.maps[map_name], comm, cap=cap, self_loops=self_loops, dtype=dtype)
    check_linear(comm, graph, local, FullHalo(local, comm, buffers), dtype=dtype, self_loops=self_loops)
    assert buffers.nbytes <= halo_buffer
    assert (local.outward is local.inward) == graph.undirected, "an undirected graph must be stored once"


@pytest.mark.parametrize("map_name", ["dealt", "blocks", "random", "one empty", "all on last"])
def test_every_graph_and_map(comm, stored, map_name):
    check(comm, stored, map_name, torch.float64, 1 << 20, "keep")


@pytest.mark.parametrize("dtype, self_loops", [(torch.float64, "add"), (torch.float32, "keep")], ids=str)
def test_precisions_and_self_loops(comm, stored, dtype, self_loops):
    check(comm, stored, "dealt", dtype, 1 << 16, self_loops)


def test_strided_input(comm, stored):
    """A transposed or sliced matrix is as good as a contiguous one."""
    graph, where, file = stored
    local = graphs.load(file, where.maps["dealt"], comm)
    policy = FullHalo(local, comm, HaloBuffers(1 << 16))
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((6, graph.num_nodes)))[:, local.original_id].T[:, ::2]
    mine = x.detach().requires_grad_()
    y = aggregate(policy, mine, "mean")
    y.sum().backward()  # the gradient of a sum is an expanded scalar, with strides of zero
    matrix = oracle.operator(oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight), "mean")
    np.testing.assert_allclose(whole(comm, local, y), matrix @ whole(comm, local, x), rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        whole(comm, local, mine.grad), np.repeat(matrix.sum(0)[:, None], 3, 1), rtol=0, atol=1e-9
    )
