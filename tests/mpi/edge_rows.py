"""Graph files whose edges have features, of small graphs with every oddity."""

import graphs
import numpy as np

import partition_tools

FEATURES, EDGE, RELATIONS, NODE_TYPES = 5, 4, 3, 2
GRAPHS = {
    graph.name: graphs.with_task(graph, FEATURES)
    for graph in (graphs.random_directed(), graphs.random_undirected(weighted=True), graphs.star(), graphs.no_edges())
}


def rows_of(graph):
    """(E, EDGE) float32, all different; an edge and its reverse too."""
    return np.random.default_rng(8).standard_normal((len(graph.src), EDGE)).astype(np.float32)


def types_of(graph):
    """(E,): the types of edges."""
    return (graph.src + graph.dst) % RELATIONS


def save(comm, path, graph, **arrays):
    """Write a graph with a map by METIS for these ranks, unless it is there. Collective."""
    if comm.rank == 0 and not path.exists():
        split = {which: (graph.split == code) & (graph.labels >= 0) for which, code in (("train", 1), ("val", 2))}
        what = np.stack([graph.src, graph.dst]), graph.features, graph.labels, split
        partition_tools.save_graph(path, *what, edge_weight=graph.weight, ranks=sorted({1, comm.size}), **arrays)
    comm.barrier()
    return path


def written_with_rows(comm, folder):
    """{name: file} of GRAPHS with `rows_of` their edges, and types. Collective."""
    found = {}
    for name, graph in GRAPHS.items():
        types = {"edge_type": types_of(graph), "node_type": np.arange(graph.num_nodes) % NODE_TYPES}
        path = folder / f"edge-rows-{name.replace(' ', '-')}.h5"
        # The names tell the number of types, also where there are no edges.
        found[name] = save(comm, path, graph, edge_features=rows_of(graph), edge_type_names=[*"abc"], **types)
    return found


def maps_of(comm, file):
    """[the stored map, one that deals out single nodes and leaves the last rank without any]."""
    nodes = np.random.default_rng(2).integers(0, max(1, comm.size - 1), file.meta.num_nodes, dtype=np.int32)
    return file.cluster_map("metis", comm.size)[0], nodes
