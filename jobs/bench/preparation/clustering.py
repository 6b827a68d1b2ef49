"""What clustering takes: memory and processor seconds of METIS and KaMinPar, beside what is foretold of METIS.

    python jobs/bench/preparation/clustering.py GRAPH.h5 ... [--clusters 512] [--methods metis,kaminpar]

Memory is that of this process and the one that splits together, above what the graph takes in memory already.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.limited import anonymous_of_all, watching
from tabulate import tabulate

from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.skew import skew
from partition_tools.graph.loading import load_graph
from partition_tools.partitioners import metis_process
from partition_tools.partitioners.choice import forecast
from partition_tools.partitioners.dissection import whole_graph
from partition_tools.partitioners.methods import METHODS
from partition_tools.partitioners.request import ClusterRequest

INTERVAL = 0.02  # seconds between two looks


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, nargs="+", metavar="GRAPH")
    parser.add_argument("--clusters", type=int, default=512)
    parser.add_argument("--methods", default="metis")
    options = parser.parse_args()
    rows = []
    for path in options.graphs:
        with GraphFile(path) as file:
            data = load_graph(file)
        degree = sum(np.diff(each.indptr) for each in (data.edges, data.edges_out) if each is not None)
        edges, taking_part = int(degree.sum()), whole_graph(data.edges, data.edges_out).graph.nnz
        for method in options.methods.split(","):
            seconds, memory = measured(data, METHODS[method], options.clusters)
            row = [path.stem, method, edges / 1e6, skew(degree), taking_part / edges, memory / edges, seconds]
            if method == "metis":
                foretold = forecast(edges, degree)
                row += [foretold.bytes / edges, foretold.seconds]
            rows.append(row)
    heading = ["graph", "method", "M edges", "share at hubs", "taking part", "bytes an edge", "processor s"]
    heading += ["bytes foretold", "s foretold"]
    print(tabulate(rows, heading, floatfmt=("", "", ".1f", ".2f", ".2f", ".0f", ".1f", ".0f", ".1f")))


def measured(data, method, clusters):
    """(processor seconds of all processes, bytes at the most above those at the start) of clustering a graph."""
    peak, before, start = [0], anonymous_of_all(os.getpid()), os.times()

    def look():
        peak[0] = max(peak[0], anonymous_of_all(os.getpid()))

    with watching(look, INTERVAL):
        method.clusters(ClusterRequest(data.edges, data.edges_out, data.original_id, clusters))
    metis_process.end()  # its seconds count when it has ended
    return sum(os.times()[:4]) - sum(start[:4]), peak[0] - before


if __name__ == "__main__":
    main()
