"""Weights that sum to less than 0, to 0, and to a rest of rounding near 0 in float32.

Every mean follows one rule, and a message appears at the start. A node whose weights summed to less than 0 once got 0
from `sage` and a quotient from `rgcn`. It also divided by a sum of 0 and ended with the advice to lower --lr.
"""

from dataclasses import replace

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate

from hpcgnn.app.graph_checks import check_weights
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Stream
from hpcgnn.graph.relations import relation_weights
from hpcgnn.graphfile.storage import write_graph
from hpcgnn.ops.relational import RelationalAggregation
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways, whole
from ..runs import train_into
from ..training import build_trainer, configure

N, RELATIONS = 60, 3


def signed_graph(directed=True):
    """Weights of both signs: those into nodes 0 and 1 sum to exactly 0, into 2 to 0 but for float32, into 3 below 0."""
    random = np.random.default_rng(7)
    src, dst = random.integers(0, N, 400), random.integers(6, N, 400)
    src, dst = src[src != dst], dst[src != dst]
    weight = random.normal(0.3, 1, len(src))
    special = [
        (10, 0, 1.0),
        (11, 0, -1.0),
        (12, 1, 0.0),
        (13, 2, 0.1),
        (14, 2, 0.2),
        (15, 2, -0.3),
        (16, 3, -2.0),
        (17, 3, 0.5),
    ]
    src, dst = (np.concatenate([a, [edge[i] for edge in special]]) for i, a in enumerate((src, dst)))
    weight = np.concatenate([weight, [edge[2] for edge in special]]).astype(np.float32)
    keys, first = np.unique(dst * N + src, return_index=True)  # the dense oracle has the sum of parallel edges alone
    src, dst, weight = src[first].astype(np.int64), dst[first].astype(np.int64), weight[first]
    return graphs.with_task(graphs.PlainGraph("signed", N, src, dst, False, weight))


GRAPH = signed_graph()
KINDS = np.where(GRAPH.dst < 6, 0, (GRAPH.src + GRAPH.dst) % RELATIONS).astype(np.int32)


@pytest.fixture(scope="module")
def stored(comm, session_path):
    """(layout, path of the graph with types)."""
    where, path = graphs.layout(GRAPH, comm.size), session_path / "signed.h5"
    if comm.rank == 0:
        data = graphs.graph_data(GRAPH, where.order, where.offsets)
        kind = {(d, s): k for s, d, k in zip(GRAPH.src, GRAPH.dst, KINDS)}
        ids = where.order

        def typed(edges, by_destination):
            rows = np.repeat(np.arange(N), np.diff(edges.indptr))
            ends = (rows, edges.indices) if by_destination else (edges.indices, rows)
            kinds = np.array([kind[ids[d], ids[s]] for d, s in zip(*ends)], np.int32)
            return replace(edges, type=kinds)

        data = replace(data, edges=typed(data.edges, True), edges_out=typed(data.edges_out, False))
        write_graph(path, data, [(name, comm.size, ranks, {}) for name, ranks in where.maps.items()])
    comm.barrier()
    return where, path


@pytest.mark.parametrize("map_name", ["dealt", "random", "one empty"])
def test_mean(comm, stored, map_name):
    """Σwx/Σw, and 0 where Σw is 0, outputs and gradients."""
    where, path = stored
    matrix = oracle.operator(oracle.adjacency(N, GRAPH.src, GRAPH.dst, GRAPH.weight), "mean")
    assert not matrix[:3].any() and matrix[3, 16] == pytest.approx(2 / 1.5) and matrix[3, 17] == pytest.approx(-1 / 3)
    local = graphs.load(path, where.maps[map_name], comm, cap=9)
    policy = FullHalo(local, comm, HaloBuffers(4 * 9 * 24))
    x, gy = np.random.default_rng(0).standard_normal((2, N, 3))
    y, gradient, _ = both_ways(comm, local, lambda rows: aggregate(policy, rows, "mean"), x, gy)
    np.testing.assert_allclose(whole(comm, local, y), matrix @ x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(whole(comm, local, gradient), matrix.T @ gy, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("map_name", ["dealt", "one empty"])
def test_relations(comm, stored, map_name):
    """The same rule for each relation by itself."""
    where, path = stored
    local = graphs.load(path, where.maps[map_name], comm, cap=9, keep_edges=True)
    buffers = HaloBuffers(4 * 9 * 32)
    along = [Stream(way.own, way.halo, way.plan, buffers, comm) for way in (local.inward, local.outward)]
    inward, outward = relation_weights(local, RELATIONS, comm, torch.float64)
    assert bool(torch.isfinite(inward).all() and torch.isfinite(outward).all())
    operator = RelationalAggregation((along[0], local.inward.edges, inward), (along[1], local.outward.edges, outward))
    draw = torch.Generator().manual_seed(1)
    coefficients, bases, x, gy = (
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((RELATIONS, 2), (2, 4, 3), (N, 4), (N, 3))
    )
    leaves = [t.clone().requires_grad_() for t in (coefficients, bases, x)]
    y = 0
    for kind in range(RELATIONS):
        of = KINDS == kind
        matrix = oracle.operator(oracle.adjacency(N, GRAPH.src[of], GRAPH.dst[of], GRAPH.weight[of]), "mean")
        y = y + torch.from_numpy(matrix) @ leaves[2] @ torch.einsum("b,bij->ij", leaves[0][kind], leaves[1])
    y.backward(gy)
    mine = [
        coefficients.clone().requires_grad_(),
        bases.clone().requires_grad_(),
        x[local.original_id].requires_grad_(),
    ]
    found = operator(mine[2], mine[0], mine[1])
    found.backward(gy[local.original_id])
    np.testing.assert_allclose(whole(comm, local, found), y.detach(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(whole(comm, local, mine[2].grad), leaves[2].grad, rtol=1e-9, atol=1e-9)
    for one, other in zip(mine[:2], leaves[:2]):
        np.testing.assert_allclose(comm.total(one.grad), other.grad, rtol=1e-8, atol=1e-8)


@pytest.mark.processes
def test_training_refuses_roots_of_them(comm, stored, shared_path):
    """gcn and sgc take roots, also where a process trains. Others take none."""
    where, path = stored
    looped = oracle.adjacency(N, GRAPH.src, GRAPH.dst, GRAPH.weight, "add")
    negative = int(((looped.sum(1) < 0) | (looped.sum(0) < 0)).sum())
    for model in ("gcn", "sgc"):
        trainer, local = loaded(comm, path, where, model, "add")
        with pytest.raises(GraphError, match=f"weights of {negative} nodes sum to less than 0.*--model sage") as caught:
            check_weights(local, trainer.model.spec, comm)
        assert "\n" not in str(caught.value) and caught.value.everywhere
    with pytest.raises(GraphError, match="sum to less than 0"):
        train_into(comm, path, shared_path / "run", model="gcn", epochs=1, partition="random")
    for model in ("sage", "rgcn", "gin", "gat", "pna"):
        trainer, local = loaded(comm, path, where, model, "keep")
        check_weights(local, trainer.model.spec, comm)


def loaded(comm, path, where, model, loops):
    trainer = build_trainer(comm, configure(path, model=model, precision="fp64"), "random", rows=20)
    return trainer, graphs.load(path, where.maps["random"], comm, self_loops=loops, keep_edges=True)
