"""The small graphs with their files and their lists of edges, for tests of operators against a list of all edges."""

import graphs
import h5py
import numpy as np
import oracle
import torch

GRAPHS = {graph.name: graphs.with_task(graph) for graph in graphs.all_graphs()}


def edges_of(graph, self_loops):
    """(src, dst) of the edges that the operator sees, sorted by destination and source."""
    src, dst = graph.src, graph.dst
    if self_loops == "add":
        lonely = np.setdiff1d(np.arange(graph.num_nodes), src[src == dst])
        src, dst = np.concatenate([src, lonely]), np.concatenate([dst, lonely])
    order = np.lexsort((src, dst))
    return src[order], dst[order]


def stored(comm, folder, name):
    """(graph, layout, file) of a small graph. Collective."""
    return written(comm, folder, GRAPHS[name], "operator")


def written(comm, folder, graph, kind, sparse=False, where=None):
    """The same of any graph. kind: how the names of such files begin; where: its layout, unless it is the usual one."""
    where = where or graphs.layout(graph, comm.size)
    file = folder / f"{kind}-{graph.name.replace(' ', '-')}-{sparse}.h5"
    if comm.rank == 0 and not file.exists():
        graphs.write_file(file, graph, where, comm.size, sparse)
    comm.barrier()
    return graph, where, file


def dense(graph, kind):
    """(adjacency with the self loops that a model wants, features, labels, bool (n,) of the training nodes)."""
    labels = torch.from_numpy(graph.labels.astype(np.int64))
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, "add" if kind == "gcn" else "keep")
    train = (labels >= 0) & torch.from_numpy(graph.split == graphs.TRAIN)
    return a, torch.from_numpy(graph.features).double(), labels, train


def edges_and_features(path):
    """((2, E) ends by original ids, features in their order) of a graph file."""
    with h5py.File(path) as file:
        ids, indptr = file["nodes/original_id"][:], file["topology/indptr"][:]
        ends = np.stack([ids[file["topology/indices"][:]], np.repeat(ids, np.diff(indptr))])
        return ends, file["nodes/features"][:][np.argsort(ids)]
