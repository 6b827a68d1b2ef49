"""Writing of a graph file: the progress bar, and the line about the result."""

from collections.abc import Collection
from pathlib import Path

from hpcgnn.graphfile.given_links import stored_links
from hpcgnn.graphfile.label_files import MULTILABEL, REGRESSION
from hpcgnn.graphfile.schema import GraphData
from hpcgnn.graphfile.storage import Partitioning, arrays_of, write_graph
from partition_tools.workspace.progress import Reporter


def write_with_bar(
    output: str | Path, data: GraphData, partitionings: Collection[Partitioning] = (), reporter: Reporter | None = None
) -> None:
    """`write_graph` with a progress bar over rows."""
    reporter = reporter or Reporter()
    rows = sum(array.shape[0] for _, array in arrays_of(data))
    rows += sum(array.shape[0] for _, array, _ in stored_links(data.links))
    rows += sum(field.shape[0] * field.shape[1] for field in data.snapshots.fields.values()) if data.snapshots else 0
    with reporter.bar(rows, f"writing {output}") as progress:
        write_graph(output, data, partitionings, progress)


def summary(output: str | Path, data: GraphData) -> str:
    """One line about the written file."""
    meta = data.meta
    kind = "undirected" if meta.undirected else "directed"
    types = "".join(
        f"{count} {what} types, "
        for count, what in ((meta.num_node_types, "node"), (meta.num_edge_types, "edge"))
        if count
    )
    of_edges = f"{meta.num_edge_features} edge features, " if meta.num_edge_features else ""
    held = "".join(f"{given.edges.shape[0]:,} held-out edges of {split}, " for split, given in data.links.items())
    outputs = {MULTILABEL: "0/1 labels", REGRESSION: "targets"}.get(meta.task, "classes")
    return (
        f"{output}: {meta.num_nodes:,} nodes, {meta.num_edges:,} directed edges ({kind}), {types}{meta.num_features} "
        f"features, {of_edges}{held}{meta.num_classes} {outputs}, uuid {meta.uuid}"
    )
