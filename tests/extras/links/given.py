"""Graph files with held-out edges and their negatives, of every kind. Maps scatter the nodes, and leave a rank
without any.
"""

import graphs
import numpy as np

from hpcgnn.graphfile.storage import write_graph
from partition_tools.canonical.links import canonical_links
from partition_tools.readers.arrays.in_memory import as_links

MADE = graphs.random_undirected(), graphs.random_directed(weighted=True)
GRAPHS = {each.name: graphs.with_task(each) for each in MADE}


def held(graph, kind):
    """The held-out edges of a graph: pairs and negatives contain equal ones, so that scores tie."""
    random, n, found = np.random.default_rng(3), graph.num_nodes, {}
    for split, count in (("val", 31), ("test", 12)):
        pairs = random.integers(0, n, (count, 2))
        pairs[4:6] = pairs[3], pairs[2, ::-1]
        if kind == "each":
            targets = random.integers(0, n, (count, 9))
            targets[::2, 3], targets[1, :] = pairs[::2, 1], pairs[1, 1]
            found[split] = {"source_node": pairs[:, 0], "target_node": pairs[:, 1], "target_node_neg": targets}
        else:
            negatives = np.concatenate([random.integers(0, n, (140, 2)), pairs[:7], pairs[7:9, ::-1]])
            found[split] = {"edge": pairs} | ({"edge_neg": negatives} if kind == "shared" else {})
    return found


def written_with_links(comm, folder, prefix):
    """{(graph, kind): (the held-out edges, file)}. Collective."""
    found = {}
    for name, graph in GRAPHS.items():
        for kind in ("none", "shared", "each"):
            path, given = folder / f"{prefix}-{name}-{kind}.h5", held(graph, kind)
            if comm.rank == 0:
                where = graphs.layout(graph, comm.size)
                data = graphs.graph_data(graph, where.order, where.offsets)
                data.links = canonical_links(as_links(given), graph.num_nodes)
                write_graph(path, data, [(each, comm.size, owner, {}) for each, owner in where.maps.items()])
            found[name, kind] = given, path
    comm.barrier()
    return found
