"""METIS or KaMinPar: a forecast of METIS's memory from the degrees, before it is spent.

METIS holds the graph at every level of its multigrid, in 64-bit numbers, and merges two nodes only where few edges
meet. On a graph of hubs most nodes find no partner, so the levels stay large and are many. Most edges of such a graph
take no part (`weights`). The more skewed the graph, the more each of the others costs. The constants are fits to whole
dissections.
"""

from typing import Any

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.placement.clusters import skew
from partition_tools.partitioners import kaminpar, metis
from partition_tools.partitioners.weights import most_edges
from partition_tools.workspace.budget import available_memory
from partition_tools.workspace.progress import Reporter

BYTES_PER_EDGE, BYTES_PER_SKEWED_EDGE = 115.0, 130.0  # of an edge that takes part; the second times the skew


def forecast(num_edges: int, degrees: np.ndarray) -> int:
    """METIS's memory above the graph itself, in bytes.

    num_edges: directed edges of the symmetric pattern of the graph. degrees: int (n,), or degrees of an even sample of
    the nodes.
    """
    share = skew(np.asarray(degrees))
    return int(num_edges * most_edges(degrees) * (BYTES_PER_EDGE + share * BYTES_PER_SKEWED_EDGE))


def choose(num_edges: int, degrees: np.ndarray, memory: int, reporter: Reporter) -> Any:
    """The module of the method that `--method auto` stands for: METIS, unless it would not fit.

    memory: bytes that may be taken (`workspace.budget.memory_budget`). Other arguments: see `forecast`. It logs the
    choice of KaMinPar. Raises GraphError if METIS does not fit and KaMinPar is not installed.
    """
    needed = forecast(num_edges, degrees)
    takes = f"METIS would take about {needed / 2**30:.1f} GiB, and {memory / 2**30:.1f} GiB may be taken"
    if needed > memory and kaminpar.installed():
        reporter.stage(f"clustering with KaMinPar: {takes}")
        return kaminpar
    if needed > max(memory, available_memory()):
        raise GraphError(f"{takes}; install KaMinPar, which takes far less (pip install 'hpcgnn[kaminpar]')")
    return metis
