"""METIS or KaMinPar: a forecast of METIS's memory and time from the degrees, before they are spent.

METIS holds the graph at every level of its multigrid, in 64-bit numbers, and merges two nodes only where few edges
meet. On a graph of hubs most nodes find no partner, so the levels stay large and are many. Most edges of such a graph
take no part (`weights`). The more skewed the graph, the more each of the others costs. The constants are fits to whole
dissections; docs/preparing-measured.md names the graphs and the errors.
"""

from typing import Any

import numpy as np

from hpcgnn import cores
from hpcgnn.errors import GraphError
from hpcgnn.placement.clusters import skew
from partition_tools.partitioners import kaminpar, metis
from partition_tools.partitioners.weights import most_edges
from partition_tools.workspace.budget import available_memory
from partition_tools.workspace.progress import Reporter, spoken

BYTES_PER_EDGE, BYTES_PER_SKEWED_EDGE = 115.0, 130.0  # of an edge that takes part; the second times the skew
SECONDS_PER_EDGE, SECONDS_PER_SKEWED_EDGE = 1.5e-6, 3.5e-6
KAMINPAR_SECONDS_PER_EDGE, MOST_CORES = 2.2e-6, 16  # of one core; how many it makes good use of
LONG_SECONDS, LONG_RATIO = 300.0, 4.0


def forecast(num_edges: int, degrees: np.ndarray) -> tuple[int, float, float]:
    """METIS's memory above the graph itself in bytes, its seconds on one core, and those of KaMinPar on all cores.

    num_edges: directed edges of the symmetric pattern of the graph. degrees: int (n,), or degrees of an even sample of
    the nodes.
    """
    share, edges = skew(np.asarray(degrees)), num_edges * most_edges(degrees)
    return (
        int(edges * (BYTES_PER_EDGE + share * BYTES_PER_SKEWED_EDGE)),
        edges * (SECONDS_PER_EDGE + share * SECONDS_PER_SKEWED_EDGE),
        KAMINPAR_SECONDS_PER_EDGE * edges / min(len(cores.usable()), MOST_CORES),
    )


def choose(num_edges: int, degrees: np.ndarray, memory: int, reporter: Reporter) -> Any:
    """The module of the method that `--method auto` stands for: METIS, unless it would not fit or take much longer.

    memory: bytes that may be taken (`workspace.budget.memory_budget`). Other arguments: see `forecast`. It logs a
    choice other than METIS, and warns if KaMinPar would be better and is not installed. Raises GraphError if METIS does
    not fit and KaMinPar is not installed.
    """
    needed, seconds, others = forecast(num_edges, degrees)
    takes = f"METIS would take about {needed / 2**30:.1f} GiB and {spoken(seconds)}"
    too_large = needed > memory
    if not too_large and (seconds <= LONG_SECONDS or seconds <= LONG_RATIO * others):
        return metis
    room = f", and {memory / 2**30:.1f} GiB may be taken" if too_large else ""
    if kaminpar.installed():
        reporter.stage(f"clustering with KaMinPar: {takes}{room}")
        return kaminpar
    if needed > max(memory, available_memory()):
        raise GraphError(f"{takes}{room}; install KaMinPar, which takes far less (pip install 'hpcgnn[kaminpar]')")
    reporter.warn(f"{takes}; KaMinPar would be faster: pip install 'hpcgnn[kaminpar]'")
    return metis
