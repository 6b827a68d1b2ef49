"""`hpcgnn propagate`: features that have come along the edges once, for models that then see each node by itself.

A^k X is made hop by hop by the streaming aggregation, and each hop is written before the next begins. A rank holds
rows of its own nodes alone: the features, one hop, and the next.
"""

import contextlib
import hashlib
import itertools
import time
import uuid
from collections.abc import Iterator

import numpy as np
import torch
from tabulate import tabulate

from hpcgnn.app.bring_up import make_buffers, opened
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.errors import GraphError
from hpcgnn.extras.recipes.hops import OPERATORS, HopRequest, check_roots, features_of, hops_of, label_hops_of
from hpcgnn.extras.recipes.other_features import with_other_features
from hpcgnn.graph.load import load_local_graph, read_clusters
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.own_rows import read_original_id
from hpcgnn.graphfile.original_order import OriginalOrder
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.resident import use_threads
from hpcgnn.outputs.files import check_results, files_read
from hpcgnn.placement.ownership import Ownership
from hpcgnn.plan.model_spec import DTYPES
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.terminal import tell


def propagate_features(config: Config, session: Session, request: HopRequest) -> int:
    """Write a copy of config.data.graph whose features are hops side by side. Collective. Returns 0."""
    comm, started = session.comm, time.perf_counter()
    start_logging(comm.rank)
    use_threads(session.threads)
    with comm.together("looking where features go", on_one=True):
        check_results("--output", request.output, comm, files_read(config), request.force)
    with contextlib.ExitStack() as stack:
        asked = {"the request": str(request)}
        config, graph = stack.enter_context(opened(config, comm, labelled=request.label_hops > 0, facts=asked))
        meta = graph.file.meta
        if not meta.num_features:
            raise GraphError.on_all(
                f"{graph.file.path} has no node features; import it with a feature table (--features)"
            )
        widths = request.widths(meta)
        with torch.no_grad(), comm.ledger.booked_as("evaluation"):
            parts = _parts(config, comm, graph.file, graph.clusters, request)
            first = next(parts)  # the graph is checked before it is copied
            with comm.together("copying the graph", on_one=True):
                put = None
                if comm.rank == 0:
                    record = request.record(_self_loops(config))
                    name = hashlib.sha256(f"{meta.uuid} {record}".encode()).digest()
                    about = {"uuid": str(uuid.UUID(bytes=name[:16], version=5)), "propagated": record}
                    with comm.heartbeat.computing():
                        put = stack.enter_context(
                            with_other_features(graph.file, request.output, widths, request.label_parts, **about)
                        )
            for part, hop, rows in itertools.chain([first], parts):
                order = OriginalOrder({"features": hop.float()}, rows, meta.num_nodes, comm)
                if put is None:
                    order.hand_over()
                    continue
                for nodes, slab in order.slabs():
                    put(int(nodes[0]), slab["features"], part)
    comm.barrier()
    if comm.rank == 0:
        shown = [("operators", f"{', '.join(request.operators)}, {request.hops} hops")]
        if request.label_hops:
            shown += [("labels", f"{request.label_hops} hops")]
        each = [f"{len(list(group))} × {width}" for width, group in itertools.groupby(widths)]
        shown += [("columns", " + ".join(each)), ("nodes", f"{meta.num_nodes:,}")]
        shown += [("ranks × threads", f"{comm.size} × {session.threads}")]
        shown += [("seconds", f"{time.perf_counter() - started:.3f}")]
        tell(tabulate(shown, tablefmt="rounded_outline", disable_numparse=True))
        tell(f"graph in {request.output}")
    return 0


def _parts(
    config: Config, comm: Communicator, file: GraphFile, clusters: np.ndarray, request: HopRequest
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield (number of a group of columns, its rows of owned nodes, rows of the file that these are).

    Collective: exhaust it on all ranks, without autograd. The caller must not change the rows.
    """
    meta, dtype = file.meta, DTYPES[config.run.precision]
    widths = request.widths(meta)
    buffers = make_buffers(max(widths) * dtype.itemsize, config)
    cap, labelled = buffers.cap(buffers.widest_row), request.label_hops > 0
    local = load_local_graph(file, clusters, comm, cap, _self_loops(config), dtype, labelled=labelled)
    if any(OPERATORS[name] == "sym" for name in request.operators):
        check_roots(local, comm, "sym and ppr divide")
    rows, halo, x = _rows_of_file(file, local, clusters, comm), FullHalo(local, comm, buffers), features_of(local)
    of_labels = label_hops_of(halo, local, dtype, request) if labelled else ()
    for part, hop in enumerate(itertools.chain([x], hops_of(halo, x, request), of_labels)):
        yield part, hop, rows


def _self_loops(config: Config) -> str:
    return "keep" if config.data.self_loops == "keep" else "add"


def _rows_of_file(file: GraphFile, local: LocalGraph, cluster_to_rank: np.ndarray, comm: Communicator) -> torch.Tensor:
    """int64 (n_p,): the row of the file that each own node has. Collective."""
    offsets = read_clusters(file, comm)
    with comm.together("reading the order of the file"):
        ranges = Ownership(offsets, cluster_to_rank, comm.size).ranges(comm.rank)
        there = torch.cat([torch.zeros(0, dtype=torch.int64), *(torch.arange(*each) for each in ranges)])
        ids, rows = read_original_id(file, ranges), torch.empty(len(there), dtype=torch.int64)
        rows[torch.argsort(local.original_id)] = there[torch.argsort(ids)]
    return rows
