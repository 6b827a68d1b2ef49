"""Graph files with fields at many times, drawn over original ids."""

from dataclasses import replace

import graphs
import numpy as np

from hpcgnn.graphfile.field_series import FieldSeries
from hpcgnn.graphfile.storage import write_graph

TIMES, COLUMNS = 6, {"velocity": 2, "p.total": 1}


def fields(nodes, seed=3):
    """{field: (T, n, F) over original ids}, one of them in float64, with the times, trajectories and split."""
    random = np.random.default_rng(seed)
    kinds = zip(COLUMNS.items(), (np.float32, np.float64), strict=True)
    found = {name: random.standard_normal((TIMES, nodes, width)).astype(kind) for (name, width), kind in kinds}
    return found, np.array([0, 0.5, 2, 0, 0.5, 2]), np.array([0, 0, 0, 1, 1, 1], np.int32), np.array([1, 1, 2, 3, 3, 0])


def write(path, ranks=3, split_of_times=None, **changes):
    """Write a graph file with fields, nodes in a random order, and return (its layout, the fields by original id)."""
    graph = graphs.with_task(graphs.random_directed())
    where = graphs.layout(graph, ranks)
    data = graphs.graph_data(graph, where.order, where.offsets)
    values, time, number, split = fields(graph.num_nodes)
    ordered = {name: each[:, where.order] for name, each in values.items()}
    series = FieldSeries(ordered, time, number, (split if split_of_times is None else split_of_times).astype(np.uint8))
    maps = [(name, ranks, cluster_to_rank, {}) for name, cluster_to_rank in where.maps.items()]
    write_graph(path, replace(data, **{"snapshots": series} | changes), maps)
    return where, values
