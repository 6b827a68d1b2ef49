"""Weights that sum to less than 0, to 0, and to a rest of rounding near 0 in float32.

Every mean follows one rule, and a message appears at the start. A node whose weights summed to less than 0 once got 0
from `sage` and a quotient from `rgcn`. It also divided by a sum of 0 and ended with the advice to lower --lr.
"""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.app.graph_checks import check_weights
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.rgcn import RGCNConv
from hpcgnn.schedules.full_halo import FullHalo

from ..edge_rows import maps_of, save
from ..linear import check_linear
from ..nn import formulas
from ..runs import train_into
from ..training import build_trainer, configure

N, RELATIONS = 60, 3


def signed_graph():
    """Weights of both signs: those into nodes 0 and 1 sum to exactly 0, into 2 to 0 but for float32, into 3 below 0."""
    random = np.random.default_rng(7)
    src, dst = random.integers(0, N, 400), random.integers(6, N, 400)
    src, dst = src[src != dst], dst[src != dst]
    weight = random.normal(0.3, 1, len(src))
    src, dst = np.append(src, range(10, 18)), np.append(dst, [0, 0, 1, 2, 2, 2, 3, 3])
    weight = np.append(weight, [1, -1, 0, 0.1, 0.2, -0.3, -2, 0.5]).astype(np.float32)
    keys, first = np.unique(dst * N + src, return_index=True)  # the dense oracle has the sum of parallel edges alone
    src, dst, weight = src[first].astype(np.int64), dst[first].astype(np.int64), weight[first]
    return graphs.with_task(graphs.PlainGraph("signed", N, src, dst, False, weight))


GRAPH = signed_graph()
KINDS = np.where(GRAPH.dst < 6, 0, (GRAPH.src + GRAPH.dst) % RELATIONS).astype(np.int32)


@pytest.fixture(scope="module")
def path(comm, session_path):
    """A file of the graph with types of edges."""
    return save(comm, session_path / "signed.h5", GRAPH, edge_type=KINDS)


def shares(comm, path):
    """LocalGraphs by both maps."""
    with GraphFile(path) as file:
        for owner in maps_of(comm, file):
            yield load_local_graph(file, owner, comm, 9, "keep", torch.float64, keep_edges=True)


def mean_over(edges):
    """The dense matrix of the mean over some edges: Σwx/Σw, and 0 where Σw is 0."""
    return oracle.operator(oracle.adjacency(N, GRAPH.src[edges], GRAPH.dst[edges], GRAPH.weight[edges]), "mean")


def test_mean(comm, path):
    matrix = mean_over(slice(None))
    assert not matrix[:3].any() and matrix[3, 16] == pytest.approx(2 / 1.5) and matrix[3, 17] == pytest.approx(-1 / 3)
    for local in shares(comm, path):
        check_linear(comm, GRAPH, local, FullHalo(local, comm, HaloBuffers(4 * 9 * 24)), norms=["mean"])


def test_relations(comm, path):
    """The same rule for each relation by itself."""
    layer = RGCNConv(4, 3, RELATIONS, 2, torch.float64)
    means = [torch.from_numpy(mean_over(KINDS == kind)) for kind in range(RELATIONS)]

    def formula(p, x):
        mixed = torch.einsum("rb,bij->rij", p["coefficients"], p["bases"])
        return formulas.affine(p, "own", x) + sum(mean @ x @ matrix for mean, matrix in zip(means, mixed))

    expected = formulas.Expected(layer, formula, *formulas.drawn(layer, N, 4, 3))
    for local in shares(comm, path):
        expected.check(comm, local, 9)


@pytest.mark.processes
def test_training_refuses_roots_of_them(comm, path, shared_path):
    """gcn and sgc take roots, also where a process trains. Others take none."""
    looped = oracle.adjacency(N, GRAPH.src, GRAPH.dst, GRAPH.weight, "add")
    negative = int(((looped.sum(1) < 0) | (looped.sum(0) < 0)).sum())
    for model in ("gcn", "sgc"):
        trainer = build_trainer(comm, configure(path, model=model), "metis")
        with pytest.raises(GraphError, match=f"weights of {negative} nodes sum to less than 0.*--model sage") as caught:
            check_weights(trainer.local, trainer.model.spec, comm)
        assert "\n" not in str(caught.value) and caught.value.everywhere
    with pytest.raises(GraphError, match="sum to less than 0"):
        train_into(comm, path, shared_path / "run", model="gcn", epochs=1)
    for model in ("sage", "rgcn", "gin", "gat", "pna"):
        trainer = build_trainer(comm, configure(path, model=model, self_loops="keep"), "metis")
        check_weights(trainer.local, trainer.model.spec, comm)
