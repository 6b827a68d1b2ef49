"""Dense features that are mostly zeros: sent as their entries, in bytes counted from the file, and the same numbers
arrive.
"""

from dataclasses import replace

import graphs
import numpy as np
import pytest
import torch
from asking import aggregate

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import Wire
from hpcgnn.schedules.full_halo import FullHalo

from ..small import GRAPHS, edges_of, written

GRAPH, WIDTH = GRAPHS["power law"], 60
GENERATOR = np.random.default_rng(4)
FEW = GENERATOR.normal(size=(GRAPH.num_nodes, WIDTH)) * (GENERATOR.random((GRAPH.num_nodes, WIDTH)) < 0.08)
FEW[np.argmax(np.bincount(GRAPH.src))] = 1.5  # the row that most ranks want has no zero
# name: (features, bytes of an entry in fp32, whether entries are fewer bytes than rows)
FEATURES = {
    "numbers": (FEW, 8, True),
    "one hot": (2.0 * np.eye(GRAPH.num_nodes, WIDTH), 4, True),
    "all zero": (np.zeros((GRAPH.num_nodes, WIDTH)), 8, True),
    "half zero": (GENERATOR.normal(size=(GRAPH.num_nodes, WIDTH)).clip(min=0), 8, False),
}


@pytest.fixture(scope="module", params=FEATURES)
def stored(comm, session_path, request):
    """(features float32, bytes of an entry, whether they travel so, layout, file)."""
    features, entry, compact = FEATURES[request.param]
    graph = graphs.replace(GRAPH, features=features.astype(np.float32))
    _, where, file = written(comm, session_path, graph, f"compact-{request.param}")
    return graph.features, entry, compact and comm.size > 1, where, file


def expected_bytes(features, entry, where, map_name, scaled):
    """Over all ranks, from the list of edges, where all rows for a rank are one message."""
    owner, (src, dst) = where.owner(map_name), edges_of(GRAPH, "keep")
    wanted = {(owner[s], owner[d], s) for s, d in zip(src, dst) if owner[s] != owner[d]}
    total = 0
    for pair in {(p, q) for p, q, _ in wanted}:
        rows = features[[s for p, q, s in wanted if (p, q) == pair]]
        total += len(rows) * (8 if scaled else 4) + min(entry * np.count_nonzero(rows), rows.nbytes)
    return total


def sent_by_all(comm, kind):
    """Bytes of one kind of traffic since the ledger was last taken."""
    entry = comm.ledger.take().get(kind)
    return sum(comm.allgather_object(entry.bytes_sent if entry else 0))


@pytest.mark.parametrize("map_name", ["dealt", "one empty"])
def test_the_same_numbers_in_fewer_bytes(comm, stored, map_name):
    features, entry, compact, where, file = stored
    for cap in (1 << 20, 3):
        local = graphs.load(file, where.maps[map_name], comm, cap=cap, dtype=torch.float32)
        travelling = comm.total(torch.tensor([local.inward.plan.num_halo]), "plan").item() > 0
        assert (local.compact is not None) == (compact and travelling)
        found, dense = (FullHalo(each, comm, HaloBuffers(1 << 20)) for each in (local, replace(local, compact=None)))
        for norm in ("sum", "sym"):
            rows = aggregate(dense, local.features, norm)
            comm.ledger.take()
            assert torch.equal(aggregate(found, local.features, norm), rows)
            sent = sent_by_all(comm, "halo_forward")
            if compact and cap > 3:
                assert sent == expected_bytes(features, entry, where, map_name, norm == "sym")
        # Whatever is not the features, or is narrowed on its way, travels as rows.
        other = torch.randn(local.features.shape, generator=torch.Generator().manual_seed(comm.rank))
        narrow = (
            FullHalo(each, comm, HaloBuffers(1 << 20), Wire("bf16")) for each in (local, replace(local, compact=None))
        )
        for (one, rows), x in (((found, dense), other), (narrow, local.features)):
            comm.ledger.take()
            expected = aggregate(rows, x, "sum")
            sent = sent_by_all(comm, "halo_forward")
            assert torch.equal(aggregate(one, x, "sum"), expected) and sent_by_all(comm, "halo_forward") == sent
