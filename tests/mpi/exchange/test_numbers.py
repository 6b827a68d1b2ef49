"""Numbers at the edges: more than an int counts, smaller than normal ones, and the same bits every time."""

import graphs
import numpy as np
import pytest
import torch
from asking import aggregate

from hpcgnn.comm import mpi
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.placement import ownership
from hpcgnn.schedules.full_halo import FullHalo

from .. import training
from ..gathering import whole
from ..small import stored
from ..training import NODES, build_trainer, configure, generated

pytestmark = pytest.mark.ranks(2, 3)

MODELS = {
    "gcn": {"dropout": 0.3},
    "sage": {"norm": "batch"},
    "gat": {"heads": 2, "hidden": 8, "attention_dropout": 0.3},
    "pna": {"layers": 2, "hidden": 8},
}


def trained(comm, config):
    """(losses, all parameters) after some epochs."""
    losses, _, parameters, _ = training.trained(comm, config)
    return losses, torch.cat([parameter.reshape(-1) for parameter in parameters])


@pytest.mark.parametrize("model", MODELS)
def test_the_same_bits_every_time(comm, paths, model):
    """Same seed, ranks and threads: no message's time of arrival and no thread's turn leaves a trace. Always, not on
    request.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        config = configure(paths["directed multi-label"], model=model, **MODELS[model])
        (losses, parameters), (again, parameters_again) = (trained(comm, config) for _ in range(2))
    finally:
        torch.set_num_threads(before)
    assert losses == again
    assert torch.equal(parameters, parameters_again)
    assert all(
        torch.equal(parameters, other) for other in map(torch.from_numpy, comm.allgather_object(parameters.numpy()))
    ), "and on every rank"


@pytest.mark.processes
def test_messages_of_more_than_an_int_of_bytes(comm, paths, monkeypatch):
    """With the limit lowered to 100 every message of rows and every reduction is one of those."""
    config = configure(paths["directed multi-label"], model="gat", heads=2)
    losses, parameters = trained(comm, config)
    monkeypatch.setattr(mpi, "MOST_COUNT", 100)
    large = torch.arange(1001, dtype=torch.int16)
    received = comm.broadcast_(large.clone() if comm.rank == 0 else torch.zeros_like(large), 0, "test")
    assert torch.equal(received, large)
    assert trained(comm, config)[0] == losses
    assert torch.equal(trained(comm, config)[1], parameters)


def test_numbers_smaller_than_normal_ones_stay_what_they_are(comm, session_path):
    """Nothing flushes them to zero, on no rank and in no thread, so that they cannot make ranks differ.

    Powers of two give the exact sum, whoever adds it.
    """
    graph, where, file = stored(comm, session_path, "random undirected")
    local = graphs.load(file, where.maps["dealt"], comm, cap=4, dtype=torch.float32)
    x = np.full((graph.num_nodes, 40), 2.0**-140, np.float32)
    mine = torch.from_numpy(x[local.original_id.numpy()]).requires_grad_()
    y = aggregate(FullHalo(local, comm, HaloBuffers(1 << 14)), mine, "sum")
    y.backward(torch.full_like(y, 2.0**-140))
    for rows, ends in ((y, graph.dst), (mine.grad, graph.src)):
        degrees = np.bincount(ends, minlength=graph.num_nodes)
        result = whole(comm, local, rows).astype(np.float64)
        np.testing.assert_array_equal(result / 2.0**-140, np.repeat(degrees[:, None], 40, 1))


def test_more_edges_than_an_int_counts_and_more_nodes_than_a_rank_can_number(comm, session_path, monkeypatch):
    """With the limit lowered below the edges of a rank their places take 64 bits, and nothing else changes."""
    path = generated(comm, session_path / "numbers.h5", nodes=NODES, edge_types=3)
    config = configure(path, model="rgcn")
    losses, parameters = trained(comm, config)
    monkeypatch.setattr(ownership, "MOST_INT32", NODES)
    again, parameters_again = trained(comm, config)
    assert again == losses and torch.equal(parameters, parameters_again)
    most = NODES // (comm.size + 1)
    monkeypatch.setattr(ownership, "MOST_INT32", most)
    with pytest.raises(GraphError, match=rf"would own .* nodes, expected at most {most}; start more ranks"):
        build_trainer(comm, config, "metis")
