"""Rows or sums of rows, whichever are fewer: results against the dense oracle, rows against a matching by hand."""

import graphs
import numpy as np
import oracle
import pytest
import torch
from asking import aggregate

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.transforms.vertex_cover import least_rows
from hpcgnn.ops.operators import WeightedSum
from hpcgnn.schedules.full_halo import FullHalo

from .. import small
from ..gathering import whole
from ..linear import check_linear
from ..training import build_trainer, configure


def least(edges):
    """The vertices of a least cover of these pairs, which are as many as a largest matching has edges: found by one
    search after another.
    """
    mate = {}

    def matched(u, seen):
        for v in sorted({v for w, v in edges if w == u} - seen):
            seen.add(v)
            if v not in mate or matched(mate[v], seen):
                mate[v] = u
                return True
        return False

    return sum(matched(u, set()) for u in sorted({u for u, _ in edges}))


def expected_rows(graph, owner, size):
    """rows[p][k - 1]: the fewest rows that serve rank p with the data of rank p - k."""
    pairs = set(zip(graph.src.tolist(), graph.dst.tolist()))
    return [
        [least({(u, v) for u, v in pairs if owner[v] == p and owner[u] == (p - k) % size}) for k in range(1, size)]
        for p in range(size)
    ]


def prepared(comm, graph, file, cluster_to_rank, rows, width, dtype=torch.float64, self_loops="keep"):
    """(the LocalGraph, its policy) for buffers of this number of rows of this width."""
    buffers = HaloBuffers(4 * rows * width * dtype.itemsize)
    cap = max(1, buffers.cap(width * dtype.itemsize))
    local = graphs.load(file, cluster_to_rank, comm, cap=cap, self_loops=self_loops, dtype=dtype)
    local = least_rows(local, comm, always=True)
    return local, FullHalo(local, comm, buffers)


@pytest.mark.parametrize("map_name", ["dealt", "one empty"])
def test_as_few_rows_as_a_matching_has_edges(comm, stored, map_name):
    """Rows of both directions, by pair of ranks; and the ledger's counts of one aggregation and its adjoint."""
    graph, where, file = stored
    local, policy = prepared(comm, graph, file, where.maps[map_name], 100, 3)
    owner = where.owner(map_name)
    expected = expected_rows(graph, owner, comm.size)
    assert local.inward.plan.receive_counts.tolist() == expected[comm.rank]
    back = [expected[(comm.rank + k) % comm.size][k - 1] for k in range(1, comm.size)]
    assert local.inward.plan.send_counts.tolist() == back
    assert local.outward.plan.receive_counts.tolist() == back[::-1], "the adjoint sends as many the other way"
    rows = graphs.load(file, where.maps[map_name], comm).inward.plan.num_halo
    assert local.inward.plan.num_halo <= rows
    before = {kind: entry["bytes_sent"] for kind, entry in comm.ledger.total().items()}
    x = torch.randn(local.num_owned, 5, dtype=torch.float64, requires_grad=True)
    aggregate(policy, x, "sum").sum().backward()
    after = comm.ledger.total()
    for kind, count in (("halo_forward", sum(back)), ("halo_backward", sum(expected[comm.rank]))):
        sent = after.get(kind, {"bytes_sent": 0})["bytes_sent"] - before.get(kind, 0)
        assert sent == count * 5 * 8


@pytest.mark.parametrize("rows", [1, 7], ids=lambda rows: f"{rows}-row-rounds")
@pytest.mark.parametrize("dtype, self_loops", [(torch.float64, "add"), (torch.float32, "keep")], ids=str)
def test_rounds_precisions_and_self_loops(comm, stored, rows, dtype, self_loops):
    graph, where, file = stored
    local, policy = prepared(comm, graph, file, where.maps["random"], rows, 3, dtype, self_loops)
    check_linear(comm, graph, local, policy, dtype=dtype, self_loops=self_loops, norms=["sym"])
    # Narrow rows: several rounds at a time.
    check_linear(comm, graph, local, policy, width=1, dtype=dtype, self_loops=self_loops, norms=["mean"])


def test_half_precision(comm, stored):
    """Rows of bfloat16: rows by themselves arrive as they are, sums are of scaled rows and rounded once."""
    graph, where, file = stored
    local, policy = prepared(comm, graph, file, where.maps["dealt"], 100, 8, torch.float32)
    x = torch.from_numpy(np.random.default_rng(3).standard_normal((graph.num_nodes, 8))).to(torch.bfloat16)
    matrix = oracle.operator(oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight), "sym")
    operator = policy.operator(WeightedSum("sym", torch.bfloat16))
    for found, expected in (
        (operator.multiply(x[local.original_id]), matrix),
        (operator.multiply_transposed(x[local.original_id]), matrix.T),
    ):
        scale = np.abs(expected) @ np.abs(x.double().numpy())
        difference = np.abs(whole(comm, local, found) - expected @ x.double().numpy())
        assert (difference <= 2.0**-8 * scale + 1e-5).all()


def test_little_to_save_changes_nothing(comm, session_path):
    """Where rows are as few as sums, as with one edge for each, the structure stays as it is."""
    pairs = np.arange(32)
    both = np.concatenate([pairs, pairs + 32])
    graph = graphs.with_task(graphs.PlainGraph("pairs", 64, both, (both + 32) % 64, True))
    _, where, file = small.written(comm, session_path, graph, "least", where=graphs.halves(graph, comm.size))
    local = graphs.load(file, where.maps["halves"], comm)
    assert least_rows(local, comm) is local


@pytest.mark.parametrize("options", [{"model": "gat"}, {"schedule": "bns"}], ids=str)
def test_what_needs_single_rows_has_them(comm, graph, options):
    trainer = build_trainer(comm, configure(graph, halo="auto", **options), "metis", 100)
    assert trainer.local.inward.plan.sending.sums is None
