"""`hpcgnn propagate`: features that have come along the edges once, for models that then see each node by itself.

A^k X is made hop by hop by the streaming aggregation, and each hop is written before the next begins. A rank holds
rows of its own nodes alone: the features, one hop, and the next.
"""

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from tabulate import tabulate

from hpcgnn.app.bring_up import make_buffers, opened
from hpcgnn.app.edge_weights import check_roots
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.errors import GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.load import load_local_graph, read_original_id
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.opening import read_clusters
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graphfile.original_order import OriginalOrder
from hpcgnn.graphfile.other_features import with_other_features
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.shelf import OnDisk
from hpcgnn.ops.operators import Linear
from hpcgnn.outputs.files import check_results, files_read
from hpcgnn.placement.ownership import Ownership
from hpcgnn.plan.model_spec import DTYPES
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.terminal import tell


class Propagator(NamedTuple):
    """norm: a key of graph/norms.py; returns: whether each hop takes back a part of the features."""

    norm: str
    returns: bool


#: The values of --operators.
OPERATORS = {
    "sym": Propagator("sym", False),
    "mean": Propagator("mean", False),
    "ppr": Propagator("sym", True),
}


@dataclass(frozen=True)
class Request:
    """The request of `hpcgnn propagate`.

    Attributes:
        operators: keys of `OPERATORS`.
        hops: number of hops of each operator.
        teleport: weight of the features in a hop of `ppr`.
        last: whether to keep only the last hop of each operator.
        output: the graph file to write.
    """

    output: str
    operators: tuple[str, ...] = ("sym",)
    hops: int = 2
    teleport: float = 0.1
    last: bool = False
    force: bool = False

    @property
    def parts(self) -> int:
        """How many groups of columns come of it: the features and all hops, or the last ones."""
        return len(self.operators) if self.last else 1 + len(self.operators) * self.hops

    def record(self, self_loops: str) -> str:
        """Return the processing of the features, as JSON."""
        done = asdict(self) | {"self_loops": self_loops}
        return json.dumps({name: done[name] for name in sorted(done.keys() - {"output", "force"})})


def propagate_features(config: Config, session: Session, request: Request) -> int:
    """Write a copy of config.data.graph whose features are hops side by side. Collective. Returns 0."""
    comm, dtype = session.comm, DTYPES[config.run.precision]
    start_logging(comm.rank)
    request_of_all = {"the request": str(request)}
    torch.set_num_threads(session.threads)
    with comm.together("looking where features go", on_one=True):
        check_results("--output", request.output, comm, files_read(config), request.force)
    started, loops = time.perf_counter(), "keep" if config.data.self_loops == "keep" else "add"
    with contextlib.ExitStack() as stack:
        config, graph = stack.enter_context(opened(config, comm, labelled=False, facts=request_of_all))
        file, meta = graph.file, graph.file.meta
        if not meta.num_features:
            raise GraphError.on_all(f"{file.path} has no node features; import it with a feature table (--features)")
        buffers = make_buffers(meta.num_features * dtype.itemsize, config)
        cap = buffers.cap(buffers.widest_row)
        local = load_local_graph(file, graph.clusters, comm, cap, loops, dtype, labelled=False)
        if any(OPERATORS[name].norm == "sym" for name in request.operators):
            check_roots(local, comm, "sym and ppr divide")
        rows = _rows_of_file(file, local, graph.clusters, comm)
        with comm.together("copying the graph", on_one=True):
            put = None
            if comm.rank == 0:
                record = request.record(loops)
                name = hashlib.sha256(f"{meta.uuid} {record}".encode()).digest()
                about = {"uuid": str(uuid.UUID(bytes=name[:16], version=5)), "propagated": record}
                with comm.heartbeat.computing():
                    put = stack.enter_context(
                        with_other_features(file, request.output, meta.num_features, request.parts, **about)
                    )
        with torch.no_grad(), comm.ledger.booked_as("evaluation"):
            for part, hop in enumerate(hops_of(local, comm, buffers, request)):
                order = OriginalOrder({"features": hop.float()}, rows, meta.num_nodes, comm)
                if put is None:
                    order.hand_over()
                    continue
                for nodes, slab in order.slabs():
                    put(int(nodes[0]), slab["features"], part)
    comm.barrier()
    if comm.rank == 0:
        shown = [("operators", f"{', '.join(request.operators)}, {request.hops} hops")]
        shown += [("columns", f"{request.parts} × {meta.num_features}"), ("nodes", f"{meta.num_nodes:,}")]
        shown += [("ranks × threads", f"{comm.size} × {session.threads}")]
        shown += [("seconds", f"{time.perf_counter() - started:.3f}")]
        tell(tabulate(shown, tablefmt="rounded_outline", disable_numparse=True))
        tell(f"graph in {request.output}")
    return 0


def hops_of(local: LocalGraph, comm: Communicator, buffers: HaloBuffers, request: Request) -> Iterator[torch.Tensor]:
    """Yield the parts (n_p, F) of owned nodes, one after another: the features, and the hops of each operator.

    Collective: exhaust it on all ranks, without autograd. The caller must not change a yielded part.
    """
    halo, features = FullHalo(local, comm, buffers), local.features
    assert not isinstance(features, OnDisk), "they are read into memory"
    x = _dense(features) if isinstance(features, SparseRows) else features
    if not request.last:
        yield x
    for name in request.operators:
        operator, y = halo.operator(Linear(OPERATORS[name].norm, x.dtype)), x
        for hop in range(request.hops):
            y = operator(y)
            if OPERATORS[name].returns:
                y.mul_(1 - request.teleport).add_(x, alpha=request.teleport)
            if not request.last or hop == request.hops - 1:
                yield y


def _dense(x: SparseRows) -> torch.Tensor:
    rows, out = torch.repeat_interleave(torch.diff(x.indptr)), torch.zeros(x.shape, dtype=x.data.dtype)
    return out.index_put_((rows, x.indices.long()), x.data, accumulate=True)


def _rows_of_file(file: GraphFile, local: LocalGraph, cluster_to_rank: np.ndarray, comm: Communicator) -> torch.Tensor:
    """int64 (n_p,): the row of the file that each own node has. Collective."""
    offsets = read_clusters(file, comm)
    with comm.together("reading the order of the file"):
        ranges = Ownership(offsets, cluster_to_rank, comm.size).ranges(comm.rank)
        there = torch.cat([torch.zeros(0, dtype=torch.int64), *(torch.arange(*each) for each in ranges)])
        ids, rows = read_original_id(file, ranges), torch.empty(len(there), dtype=torch.int64)
        rows[torch.argsort(local.original_id)] = there[torch.argsort(ids)]
    return rows
