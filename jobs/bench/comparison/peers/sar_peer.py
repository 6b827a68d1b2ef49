"""Intel's SAR, full-batch, a process of gloo for each rank under mpiexec, with the layers of DGL, which it extends.

Each rank has the nodes that the map `metis` of the graph file gives it, as ours has.
"""

import os

from dgl_peer import convolutions, convolve, dgl  # noqa: F401 - with its stand-in for graphbolt, which sar needs

# isort: split
import h5py
import numpy as np
import sar
import torch
from dgl.distributed.graph_partition_book import RangePartitionBook
from sar.common_tuples import PartitionData, ShardEdgesAndFeatures

PACKAGES = ("sar-gnn", "dgl", "torch", "numpy")
EDGES = "_N", "_E", "_N"
#: As launchers tell a process: those of MPICH, Open MPI, and SLURM.
RANK, RANKS = (
    int(next(filter(None, map(os.environ.get, names)), alone))
    for names, alone in (
        (("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"), "0"),
        (("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"), "1"),
    )
)


def describe(model):
    """The form of the graph that the model gets. SystemExit for a model whose layer needs changes of its code."""
    if model == "gat":
        raise SystemExit("error: SAR runs attention by layers of its own; expected sage or gcn")
    torch.distributed.init_process_group("gloo", "tcp://127.0.0.1:29631", rank=RANK, world_size=RANKS)
    sar.initialize_comms(RANK, RANKS, "127.0.0.1", "gloo", torch.device("cpu"))
    return "shards of DGL's, over gloo"


def prepare(graph, model):
    """The shards of this rank, for SAR. The graph keeps the rank's own nodes alone."""
    nodes = len(graph.indptr) - 1
    owner = owners(graph.path) if graph.path else np.arange(nodes) * RANKS // nodes
    order = np.argsort(owner, kind="stable")
    place, ends = np.argsort(order), np.searchsorted(owner[order], np.arange(RANKS + 1))
    target = np.repeat(np.arange(nodes), np.diff(graph.indptr))
    counts = np.cumsum([0, *np.bincount(owner[target], minlength=RANKS)])
    mine = owner[target] == RANK
    source, target = place[graph.indices[mine]], place[target[mine]]
    ranges, of_edges = (np.stack([bounds[:-1], bounds[1:]], 1) for bounds in (ends, counts))
    shards = []
    for first, last in ranges:
        chosen = (source >= first) & (source < last)
        pair = torch.from_numpy(source[chosen]), torch.from_numpy(target[chosen])
        shards.append(ShardEdgesAndFeatures(pair, {dgl.ETYPE: torch.zeros(len(pair[0]), dtype=torch.int32)}))
    own = order[slice(*ranges[RANK])]
    graph.train = np.flatnonzero(np.isin(own, graph.train))
    graph.features, graph.labels, graph.indices = graph.features[own], graph.labels[own], None
    book = RangePartitionBook(RANK, RANKS, {"_N": ranges}, {EDGES: of_edges}, {"_N": 0}, {EDGES: 0})
    kinds = {dgl.NTYPE: torch.zeros(len(own), dtype=torch.int32)}
    data = PartitionData(shards, [*map(tuple, ranges.tolist())], kinds, ["_N"], [EDGES], book)
    return sar.construct_full_graph(data)


def owners(path):
    """int64 (n,): the rank of each node of a graph file, in the original order."""
    with h5py.File(path, "r") as file:
        sizes = np.diff(file["clusters/offsets"][:])
        owner = np.repeat(file[f"partitionings/metis/{RANKS}"][:].astype(np.int64), sizes)
        return owner[np.argsort(file["nodes/original_id"][:])]


def total(value):
    """The sum of a number over the ranks."""
    found = torch.tensor(float(value), dtype=torch.float64)
    torch.distributed.all_reduce(found)
    return float(found)


def reduce(model):
    """Add up the gradients of the ranks."""
    sar.gather_grads(model)
