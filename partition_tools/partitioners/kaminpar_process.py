"""KaMinPar in a process of its own: a ParHIP file in, an array of parts out.

`kaminpar.kaminpar_split` starts it. The library prints, keeps threads and memory, and ends the process where a graph is
damaged; here none of that matters.
"""

import argparse

import numpy as np


def main() -> None:
    """Split IN and write int32 (n,) to OUT."""
    parser = argparse.ArgumentParser(description="split a ParHIP file with KaMinPar")
    parser.add_argument("graph", metavar="IN")
    parser.add_argument("parts", metavar="OUT")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--shares", type=float, nargs="+", required=True, help="relative weight of each part")
    given = parser.parse_args()
    import kaminpar

    graph = kaminpar.load_graph(given.graph, kaminpar.GraphFileFormat.PARHIP, compress=True)
    kaminpar.reseed(given.seed)
    solver = kaminpar.KaMinPar(given.threads, kaminpar.context_by_name("terapart"))
    shares = np.asarray(given.shares) / np.sum(given.shares)
    if np.ptp(shares) < 1e-9:
        found = solver.compute_partition(graph, len(shares), given.epsilon)
    else:
        found = solver.compute_partition(graph, ((1 + given.epsilon) * shares).tolist())
    parts = np.fromiter(found, np.int32, len(found))
    with open(given.parts, "wb") as file:
        np.save(file, parts)


if __name__ == "__main__":
    main()
