"""KaMinPar in a process of its own: a ParHIP file in, an array of parts out.

`kaminpar.kaminpar_split` starts it. The library prints, keeps threads and memory, and ends the process where a graph is
damaged; here none of that matters.
"""

import json
import sys

import numpy as np


def main(graph_file: str, parts_file: str, seed: int, threads: int, epsilon: float, shares: list[float]) -> None:
    """Split a graph and write int32 (n,). shares: the weight of each part; they sum to 1."""
    import kaminpar

    graph = kaminpar.load_graph(graph_file, kaminpar.GraphFileFormat.PARHIP, compress=True)
    kaminpar.reseed(seed)
    solver = kaminpar.KaMinPar(threads, kaminpar.context_by_name("terapart"))
    if np.ptp(shares) < 1e-9:
        found = solver.compute_partition(graph, len(shares), epsilon)
    else:
        found = solver.compute_partition(graph, ((1 + epsilon) * np.array(shares)).tolist())
    with open(parts_file, "wb") as file:
        np.save(file, np.fromiter(found, np.int32, len(found)))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
