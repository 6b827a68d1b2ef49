"""Remarks of `verify` on weights of edges that sum to 0 or less: models divide by such sums."""

import numpy as np

from hpcgnn.graph.sums import weight_sums
from hpcgnn.graphfile.schema import Edges, GraphMeta
from partition_tools.graph.edges import rows


def odd_weight_sums(edges: Edges, meta: GraphMeta, suffix: str) -> list[str]:
    """The remark on the sums of one direction of the edges, '' if all weights are above 0."""
    if edges.weight is None or not len(edges.weight) or edges.weight.min() > 0:
        return []
    row, n, found = rows(edges), meta.num_nodes, []
    lonely = np.ones(n, bool)
    lonely[row[row == edges.indices]] = False
    everywhere = np.append(row, np.flatnonzero(lonely))
    with_loops = weight_sums(everywhere, np.append(edges.weight, np.ones(lonely.sum())), n)
    if (with_loops < 0).any():
        found.append(
            f"below 0 with added self loops at {int((with_loops < 0).sum())} nodes (gcn and sgc refuse this graph)"
        )
    if (with_loops == 0).any():
        found.append(f"0 with added self loops at {int((with_loops == 0).sum())} nodes (gcn and sgc give 0 there)")
    if not suffix:
        found += _odd_sums(row, edges.weight, "nodes", "sage's mean")
        if edges.type is not None:
            pairs = row.astype(np.int64) * meta.num_edge_types + edges.type
            found += _odd_sums(pairs, edges.weight, "pairs of a node and a type", "rgcn's mean")
    return found


def _odd_sums(keys: np.ndarray, weight: np.ndarray, what: str, mean: str) -> list[str]:
    """The remark on weights (E,) that sum to less than 0, or to 0, by key int (E,)."""
    present, keys = np.unique(keys, return_inverse=True)
    sums = weight_sums(keys, weight, len(present))
    said = (sums < 0, "below 0", "is then no average"), (sums == 0, "0", "is 0 there")
    return [f"{amount} at {int(odd.sum())} {what} ({mean} {is_then})" for odd, amount, is_then in said if odd.any()]
