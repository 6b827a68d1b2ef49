"""Making the shares of pruned layers takes at most the forecast memory and the memory of the finished shares."""

import tracemalloc

import numpy as np
import torch

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.extras.offload.pruned import pruned_size
from hpcgnn.graph.local import LocalGraph, build_adjacency
from hpcgnn.graph.transforms.pruning import prune
from hpcgnn.graphfile.schema import Edges
from hpcgnn.placement.order import LocalOrder, find_ends
from hpcgnn.placement.ownership import Ownership
from hpcgnn.plugins.memory_use import LiveTensors

NODES, DEGREE = 20_000, 150
WORTHWHILE, PRUNABLE = [1.0, 1.0], 2


def graph():
    """A weighted graph: every node has edges from nodes around it, and one in a hundred nodes is trained on."""
    near = (np.arange(NODES)[:, None] + np.arange(DEGREE) - DEGREE // 2) % NODES
    indptr = np.arange(0, NODES * DEGREE + 1, DEGREE)
    weight = np.linspace(1, 2, NODES * DEGREE, dtype=np.float32)
    ownership = Ownership(np.array([0, NODES]), np.zeros(1, np.int32), 1)
    found = find_ends(Edges(indptr, near.reshape(-1).astype(np.int32), weight), ownership)
    edges = build_adjacency(found, LocalOrder(), SoloCommunicator(), 1, "keep", torch.float32)
    return LocalGraph(
        inward=edges,
        outward=edges,
        features=torch.empty(NODES, 0),
        labels=torch.zeros(NODES, dtype=torch.int64),
        split=torch.from_numpy((np.arange(NODES) % 100 > 0).astype(np.uint8)),
        original_id=torch.arange(NODES),
        num_nodes=NODES,
        num_classes=2,
        task="classification",
    )


def test_what_shares_take_is_known_and_nothing_else_is_as_long_as_the_edges():
    local, comm = graph(), SoloCommunicator()
    foretold = pruned_size(local, WORTHWHILE, PRUNABLE, False, comm)
    tracemalloc.start(1)
    try:
        with LiveTensors() as torch_holds:
            shares = prune(local, WORTHWHILE, PRUNABLE, False, comm)
        height = tracemalloc.get_traced_memory()[1] + torch_holds.height
    finally:
        tracemalloc.stop()
    assert all(shares) and foretold.making == 0
    held = sum(
        sum(each.structure_nbytes + each.degree.nbytes for each in (share.inward, share.outward))
        + share.original_id.nbytes
        + share.outputs.nbytes
        for share in shares
    )
    assert foretold.held == held > 2 * 8 * NODES * DEGREE, "the first layer sees all edges, in both directions"
    assert height - held < 2 * NODES * DEGREE, "less than two bytes of an edge"
