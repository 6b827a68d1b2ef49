"""Maps on compute nodes of several ranks: their figures, as attributes of a map in the file.

Consecutive ranks are on a compute node, and the last one may have fewer. A row that several ranks of a compute node
need counts once for it. Counted for each rank, it crosses the network once for each of them.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.schema import Edges
from partition_tools.graph.quality import crossing_rows, partition_quality


def node_attributes(
    cluster_to_rank: np.ndarray, num_ranks: int, per_node: int, offsets: np.ndarray, edges: Edges
) -> dict[str, Any]:
    """Figures of a map on compute nodes of per_node consecutive ranks, exact, as attributes in the file."""
    cluster_to_rank = np.asarray(cluster_to_rank)
    quality = partition_quality(cluster_to_rank // per_node, -(-num_ranks // per_node), offsets, edges)
    return {
        "ranks_per_node": per_node,
        "compute_node_imbalance_nodes": quality.imbalance_nodes,
        "compute_node_imbalance_edges": quality.imbalance_edges,
        "compute_node_edge_cut": quality.edge_cut,
        "compute_node_halo_rows_total": quality.halo_rows_total,
        "compute_node_halo_rows_max": quality.halo_rows_max,
        "halo_rows_by_compute_node": quality.halo_rows_by_rank,
        "sent_rows_by_compute_node": quality.sent_rows_by_rank,
        "halo_rows_between_compute_nodes": crossing_rows(cluster_to_rank, num_ranks, per_node, offsets, edges),
    }


def check_grouping(per_node: int, ranks: Iterable[int]) -> None:
    """Raise ConfigError where numbers of ranks do not fill compute nodes of per_node ranks."""
    if per_node < 1:
        raise ConfigError(f"--per-node must be at least 1, got {per_node}")
    for count in ranks:
        if count > per_node and count % per_node:
            fitting = count - count % per_node
            raise ConfigError(
                f"{count} ranks do not fill nodes of {per_node} ranks; expected --ranks of at most {per_node} or a "
                f"multiple of it, such as {fitting} or {fitting + per_node}, or another --per-node"
            )
