"""Writing of a graph file: the progress bar, and the line about the result."""

from collections.abc import Collection
from pathlib import Path

from hpcgnn.graphfile.given_links import stored_links
from hpcgnn.graphfile.labels import MULTILABEL, REGRESSION
from hpcgnn.graphfile.schema import Csr, GraphData
from hpcgnn.graphfile.storage import Partitioning, write_graph
from partition_tools.workspace.progress import Reporter


def write_with_bar(
    output: str | Path, data: GraphData, partitionings: Collection[Partitioning] = (), reporter: Reporter | None = None
) -> None:
    """`write_graph` with a progress bar over rows."""
    reporter = reporter or Reporter()
    directions = 1 if data.edges_out is None else 2
    rows = data.num_nodes * (directions + 3 + (data.node_type is not None)) + directions * len(
        data.edges.indices
    ) * sum(array is not None for array in (data.edges.indices, data.edges.weight, data.edges.type))
    rows += 0 if data.edge_features is None else len(data.edges.indices)
    rows += sum(array.shape[0] for _, array, _ in stored_links(data.links))
    if data.features is not None:
        rows += 2 * len(data.features.indices) if isinstance(data.features, Csr) else data.num_nodes
    with reporter.bar(rows, f"writing {output}") as progress:
        write_graph(output, data, partitionings, progress)


def summary(output: str | Path, data: GraphData) -> str:
    """One line about the written file."""
    kind = "undirected" if data.edges_out is None else "directed"
    features = data.features
    width = 0 if features is None else features.num_columns if isinstance(features, Csr) else features.shape[1]
    types = "".join(
        f"{count} {what} types, "
        for count, what in ((data.num_node_types, "node"), (data.num_edge_types, "edge"))
        if count
    )
    of_edges = "" if data.edge_features is None else f"{data.edge_features.shape[1]} edge features, "
    held = "".join(f"{given.edges.shape[0]:,} held-out edges of {split}, " for split, given in data.links.items())
    outputs = {MULTILABEL: "0/1 labels", REGRESSION: "targets"}.get(data.task, "classes")
    return (
        f"{output}: {data.num_nodes:,} nodes, {len(data.edges.indices):,} directed edges ({kind}), {types}{width} "
        f"features, {of_edges}{held}{data.num_classes} {outputs}, uuid {data.uuid}"
    )
