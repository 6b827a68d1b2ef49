"""No rank holds anything as long as all nodes, whatever its share: the rule that lets a graph be larger than a rank.

All nodes but a few hundred belong to the last rank. The allocations of the other ranks are then small at any time,
unless one is as long as all nodes. One byte for each node shows in a tensor, and two show in the memory of Python and
numpy.
"""

import gc
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.predict import PredictRequest, predict
from hpcgnn.app.train import train
from hpcgnn.graphfile.schema import Edges, GraphData
from hpcgnn.graphfile.storage import write_graph

from ..runs import of_run, session_of
from ..training import configure

pytestmark = pytest.mark.ranks(2)

NODES = 1 << 20
# Of every rank but the last one, in clusters.
FEW, CLUSTERS = 400, 8
CASES = {
    "sar": {"model": "gcn", "norm": "batch", "dropout": 0.3, "prune": "auto"},
    # They load the graph and evaluate as the first does.
    "types": {"model": "rgcn", "directed": True},
    "bns": {"model": "gcn", "schedule": "bns", "boundary_rate": 0.5},
    "lazy": {"model": "gcn", "schedule": "lazy", "layer_epochs": "1"},
    "tma": {"model": "gcn", "schedule": "tma", "average_steps": 1},
}


class LargestTensor(TorchDispatchMode):
    """nbytes: of the largest storage that an operation of torch gave back."""

    nbytes = 0

    @classmethod
    def _should_skip_dynamo(cls):  # see hpcgnn/plugins/memory_use.py
        return False

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        found = function(*arguments, **(named or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                self.nbytes = max(self.nbytes, each.untyped_storage().nbytes())
        return found


def largest(body):
    """(bytes that Python and numpy held at most above their start, bytes of the largest tensor)."""
    gc.collect()
    tracemalloc.start(1)
    try:
        make_room_for_names()
        before = tracemalloc.get_traced_memory()[0]
        with LargestTensor() as tensors:
            body()
        return tracemalloc.get_traced_memory()[1] - before, tensors.nbytes
    finally:
        tracemalloc.stop()


def make_room_for_names():
    """Let the interpreter's table of names grow now. It does so by megabytes at a time, and might at any new path."""
    names, known = [], tracemalloc.get_traced_memory()[0]
    while len(names) < 1 << 20:
        names.append(sys.intern(f"a name that nobody has: {len(names)}"))
        now = tracemalloc.get_traced_memory()[0]
        if now - known > NODES // 8:
            break
        known = now
    del names
    tracemalloc.reset_peak()


def file_of(comm, folder, name, directed, nodes=NODES):
    """A graph of very many nodes, a few hundred of them with edges, from all ranks. Collective."""
    path = folder / f"nodes-{name}.h5"
    if comm.rank == 0 and not path.exists():
        write(path, directed, comm.size, nodes)
    comm.barrier()
    return path


def write(path, directed, ranks, nodes):
    random, few = np.random.default_rng(1), FEW * ranks
    ends = random.integers(0, few, (2, 6 * few))
    if not directed:
        ends = np.concatenate([ends, ends[::-1]], 1)

    def grouped(by, other):
        order = np.lexsort((other, by))
        indptr = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(by, minlength=nodes), out=indptr[1:])
        kinds = (by[order] + other[order]).astype(np.int32) % 3 if directed else None
        return Edges(indptr, other[order].astype(np.int32), type=kinds)

    sizes = np.full(CLUSTERS * ranks, FEW // CLUSTERS)
    sizes[-1] += nodes - sizes.sum()
    data = GraphData(
        edges=grouped(ends[1], ends[0]),
        edges_out=grouped(ends[0], ends[1]) if directed else None,
        features=random.random((nodes, 1), np.float32).astype(np.float16),
        labels=np.arange(nodes) % 2,
        split=(1 + np.arange(nodes) % 3).astype(np.uint8),
        original_id=np.arange(nodes)[::-1],
        cluster_offsets=np.concatenate([[0], np.cumsum(sizes)]),
        num_classes=2,
        uuid=f"many-{directed}",
    )
    write_graph(path, data, [("runs", ranks, np.repeat(np.arange(ranks), CLUSTERS), {})])


@pytest.mark.processes
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "sar")) for name in CASES])
def test_no_rank_holds_anything_as_long_as_all_nodes(comm, session_path, shared_path, monkeypatch, name):
    monkeypatch.setattr("hpcgnn.app.agreement.code_hash", lambda: "")  # reads the library, which is as large
    options = {"hidden": 2, "layers": 2, "epochs": 2, "partition": "runs", "halo_buffer": 0.25, **CASES[name]}
    options["intra_node"] = "messages"  # what the ranks of a node share is nobody's own
    directed, session = options.pop("directed", False), session_of(comm)
    path = file_of(comm, session_path, directed, directed)
    few_nodes = file_of(comm, session_path, "small", True, comm.size * FEW)  # those with edges alone
    config, few = configure(path, run_dir=str(shared_path / "run"), **options), comm.rank < comm.size - 1

    def job():
        return train(config, session)

    # What is imported when it is first used is not counted.
    train(configure(few_nodes, run_dir=str(shared_path / "first"), **options), session)
    held, tensor = largest(job) if few else (job(), 0)
    assert held < 2 * NODES and tensor < NODES

    def score():
        return evaluate(scored, session, "last") + predict(
            scored, session, "last", PredictRequest(str(shared_path / "p.h5"))
        )

    monkeypatch.setattr("hpcgnn.graphfile.original_order.SLAB_BYTES", 1 << 14)  # what rank 0 holds besides
    scored = of_run(shared_path / "run", partition="runs", intra_node="messages")
    held, tensor = largest(score) if few else (score(), 0)
    # For predictions in the original order every rank keeps an even share for a while, with the ids that it is of.
    assert held < 2 * NODES and tensor <= 8 * -(-NODES // comm.size)


def test_one_byte_for_each_node_shows():
    held, tensor = largest(lambda: (np.ones(NODES, bool), torch.ones(NODES, dtype=torch.bool)))
    assert held >= NODES and tensor >= NODES
    held, tensor = largest(lambda: None)
    assert max(held, tensor) < NODES // 100
