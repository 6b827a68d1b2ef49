"""Graph files whose edges have features, of small graphs with every oddity."""

import graphs
import numpy as np

import partition_tools

FEATURES, EDGE = 5, 4
GRAPHS = {
    graph.name: graphs.with_task(graph, FEATURES)
    for graph in (graphs.random_directed(), graphs.random_undirected(weighted=True), graphs.star(), graphs.no_edges())
}


def rows_of(graph):
    """(E, EDGE) float32, all different; an edge and its reverse too."""
    return np.random.default_rng(8).standard_normal((len(graph.src), EDGE)).astype(np.float32)


def save(comm, path, graph, edge_features):
    """Write a graph with a map by METIS for these ranks, unless it is there. Collective."""
    if comm.rank == 0 and not path.exists():
        split = {which: (graph.split == code) & (graph.labels >= 0) for which, code in (("train", 1), ("val", 2))}
        what = np.stack([graph.src, graph.dst]), graph.features, graph.labels, split
        more = {"edge_weight": graph.weight, "edge_features": edge_features, "ranks": sorted({1, comm.size})}
        partition_tools.save_graph(path, *what, **more)
    comm.barrier()
    return path


def written_with_rows(comm, folder):
    """{name: file} of GRAPHS with `rows_of` their edges. Collective."""
    return {
        name: save(comm, folder / f"edge-rows-{name.replace(' ', '-')}.h5", graph, rows_of(graph))
        for name, graph in GRAPHS.items()
    }


def maps_of(comm, file):
    """[the stored map, one that deals out single nodes and leaves the last rank without any]."""
    nodes = np.random.default_rng(2).integers(0, max(1, comm.size - 1), file.meta.num_nodes, dtype=np.int32)
    return file.cluster_map("metis", comm.size)[0], nodes
