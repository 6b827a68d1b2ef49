"""Additive attention over ranks against a dense oracle: outputs, gradients, dropout masks, bytes."""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import attend

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.ops.additive_attention import AttentionShape
from hpcgnn.ops.operators import Attention
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways, check_rows, sent_both_ways
from ..nn import formulas
from ..small import GRAPHS, edges_of, stored

SHAPES = [AttentionShape(4, 3), AttentionShape(1, 5), AttentionShape(3, 2, average=True)]
SHAPES += [AttentionShape(4, 1, slope=0.0)]
KEY, P = oracle.stream_key(3, 1, 4), 0.4


def edge_mask(src, dst, heads):
    """(E, heads) float64 factors of attention dropout: Philox words keyed by both ends and by which of equal edges it
    is.
    """
    equal = np.zeros(len(src), np.int64)
    for e in range(1, len(src)):
        if src[e] == src[e - 1] and dst[e] == dst[e - 1]:
            equal[e] = equal[e - 1] + 1
    groups = -(-heads // 4)
    counter = np.zeros((len(src), groups, 4), np.uint32)
    counter[..., 0], counter[..., 1] = dst[:, None], src[:, None]
    counter[..., 3] = equal[:, None] * groups + np.arange(groups)
    words = oracle.philox(counter, (KEY & oracle.M32, KEY >> 32)).reshape(len(src), 4 * groups)[:, :heads]
    threshold = round(P * 2**32)
    return torch.from_numpy((words >= threshold) / (1 - threshold / 2**32))


def right(graph, shape, projected, gy, self_loops, dropout, used=None):
    """(y, gradient of projected) by autograd over a list of all edges, float64.

    used: from (src, dst) to (bool (E,): the edges in use, (E,): the terms added to their logits after LeakyReLU).
    """
    src, dst = edges_of(graph, self_loops)
    mask, added = edge_mask(src, dst, shape.heads), 0.0
    if used is not None:
        there, added = used(src, dst)
        src, dst, mask, added = src[there], dst[there], mask[there], torch.from_numpy(added[there, None])
    n, h, f = graph.num_nodes, shape.heads, shape.columns
    projected = projected.clone().requires_grad_()
    z, a_src, a_dst = projected[:, :f], projected[:, f : f + h], projected[:, f + h :]
    logit = torch.nn.functional.leaky_relu(a_dst[dst] + a_src[src], shape.slope) + added
    factors = mask if dropout else 1.0
    y = formulas.attended(logit, z[src], torch.from_numpy(dst), n, shape.average, factors)
    y.backward(gy)
    return y.detach().numpy(), projected.grad.numpy()


def random_inputs(graph, shape, seed=0):
    """(projected rows, the gradient of the result) of all nodes."""
    random = np.random.default_rng(seed)
    projected = torch.from_numpy(random.standard_normal((graph.num_nodes, shape.columns + 2 * shape.heads)))
    gy = torch.from_numpy(random.standard_normal((graph.num_nodes, shape.width if shape.average else shape.columns)))
    return projected, gy


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_against_the_oracle(comm, session_path, name, shape):
    """F + H numbers for a halo row are sent forwards. F + 3H are sent backwards (averaged heads F/H + 3H), and H
    return. Nothing is fetched again.
    """
    graph, where, file = stored(comm, session_path, name)
    projected, gy = random_inputs(graph, shape)
    for map_name, rows, self_loops, p in (
        ("dealt", 1000, "keep", P),
        ("random", 5, "add", P),
        ("one empty", 1, "keep", 0),
    ):
        local = graphs.load(file, where.maps[map_name], comm, cap=rows, self_loops=self_loops)
        policy = FullHalo(local, comm, HaloBuffers(4 * rows * (shape.columns + 4 * shape.heads) * 8))
        policy.operator(Attention(shape))  # the ids of the halo are fetched once, before
        *found, traffic = both_ways(comm, local, lambda x: attend(policy, x, shape, KEY, p), projected, gy)
        for mine, expected in zip(found, right(graph, shape, projected, gy, self_loops, p > 0)):
            check_rows(comm, local, mine, expected, 1e-9 * max(1, np.abs(expected).max()))
        assert policy.inward.buffers.nbytes <= policy.inward.buffers.limit
        h, g = shape.heads, shape.width if shape.average else shape.columns
        forward, out = 8 * local.inward.plan.num_boundary * (shape.columns + h), local.outward.plan
        assert sent_both_ways(traffic) == [forward, 8 * (out.num_boundary * (g + 3 * h) + out.num_halo * h)]
        assert set(traffic) <= {"halo_forward", "halo_backward"}
