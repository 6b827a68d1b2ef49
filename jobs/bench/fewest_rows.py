#!/usr/bin/env python3
"""Rows or sums of rows: one job with `--halo rows` and with `--halo least`, by turns.

The columns are least over rows: halo bytes of an epoch, bytes of the rank that sends most, processor seconds of an
epoch on all ranks (the least of the epochs after the first; the median of the turns, and their range), seconds of an
epoch likewise, the memory that training adds to the largest rank, and how many epochs' time loading takes longer.

With --per-node nothing is trained. The rows that cross between nodes in one exchange are counted from the file, for
ranks that send each other rows (`--intra-node messages`) and for nodes that do (`shared`): rows as they are, and rows
or sums of rows. All are in units of the nodes of the graph.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from measuring.launched import measured, parallel, quietly
from tabulate import tabulate

from hpcgnn.estimate.counts.between_nodes import Nodes
from hpcgnn.estimate.counts.shares import Counter
from hpcgnn.graphfile.storage import GraphFile

EPILOG = """examples:
  python jobs/bench/fewest_rows.py --graph g1.h5 --ranks 8 --model gcn sage
  python jobs/bench/fewest_rows.py --graph r2m.h5 --ranks 8 -- --hidden 64
  python jobs/bench/fewest_rows.py --graph rmat.h5 --ranks 64 --per-node 4 8 16
  python jobs/bench/fewest_rows.py --graph g1.h5 --ranks 4 --launch "bash jobs/bench/slow_network.sh 100mbit 4"
"""
COUNTED = ["graph", "ranks", "on a node", "rows, ranks", "least, ranks", "rows, nodes", "least, nodes", "of messages"]
COLUMNS = ["graph", "model", "ranks", "bytes", "busiest", "processor", "wall", "memory", "loading (epochs)"]


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graph", nargs="+", required=True, metavar="FILE.h5")
    parser.add_argument("--model", nargs="+", default=["sage"], metavar="NAME")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4, help="of each run, 2 or more")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default 3)")
    parser.add_argument("--per-node", nargs="+", type=int, metavar="N", help="count rows between nodes of N ranks")
    parser.add_argument("--launch", default="", help="what starts the ranks (default: mpiexec -n RANKS)")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    options = parser.parse_args()
    if options.per_node:
        lines = [line for graph in options.graph for line in counted(graph, options.ranks, options.per_node)]
        print(tabulate(lines, COUNTED, floatfmt=".3f"))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for graph in options.graph:
            for model in options.model:
                turns = [
                    {halo: run(options, graph, model, halo, Path(folder)) for halo in ("rows", "least")}
                    for _ in range(options.repeat)
                ]
                rows.append([Path(graph).stem, model, options.ranks, *ratios(turns)])
                print("  ".join(map(str, rows[-1])), flush=True)
    print(tabulate(rows, COLUMNS))
    return 0


def counted(graph, ranks, groups):
    """Yield the lines of the table of rows between nodes, for nodes of so many ranks each."""
    with GraphFile(graph) as file:
        name = next(iter(file.partitionings()))
        cluster_to_rank, n = file.cluster_map(name, ranks)[0], file.meta.num_nodes

        def inward(halo, between=None):
            every = np.ones(n, bool)
            return Counter(file, cluster_to_rank, ranks, halo, between).halo(every, every)[0]

        of_ranks = [inward(halo) for halo in ("rows", "least")]
        for per_node in groups:
            crossing = [
                each.rows[(each.receiver - each.offset) % ranks // per_node != each.receiver // per_node].sum() / n
                for each in of_ranks
            ]
            nodes = [inward(halo, Nodes(ranks, per_node)).rows.sum() / n for halo in ("rows", "least")]
            yield [Path(graph).stem, ranks, per_node, *crossing, *nodes, nodes[1] / max(1 / n, crossing[1])]


def run(options, graph, model, halo, folder):
    """What one job measured: {column: number}."""
    run_dir = folder / f"run-{len(list(folder.iterdir()))}"
    command = ["-m", "hpcgnn", "train", "--graph", graph, "--model", model, "--halo", halo, "--epochs", options.epochs]
    command += ["--threads", 1, "--auto-partition", "--run-dir", run_dir, *options.more]
    launch = options.launch.split()
    quietly([*launch, sys.executable, *command] if launch else parallel(options.ranks, *command))
    done, kinds = measured(run_dir), ("halo_forward", "halo_backward")
    return {
        "bytes": done.summary["halo_bytes_per_epoch"],
        "busiest": sum(done.last["bytes"][kind]["max"] for kind in kinds if kind in done.last["bytes"]),
        "processor": done.processor,
        "wall": done.wall,
        "memory": done.summary["training_growth_bytes"]["max"],
        "loading": done.summary["seconds_loading"],
    }


def ratios(turns):
    """The columns of the table from [{halo: {column: number}}]."""

    def over(column):
        found = sorted(turn["least"][column] / turn["rows"][column] for turn in turns)
        return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"

    def counted(column):
        return f"{turns[0]['least'][column] / turns[0]['rows'][column]:.3f}"

    longer = [(turn["least"]["loading"] - turn["rows"]["loading"]) / turn["rows"]["wall"] for turn in turns]
    exact, timed = map(counted, ("bytes", "busiest")), map(over, ("processor", "wall", "memory"))
    return *exact, *timed, f"{statistics.median(longer):.1f}"


if __name__ == "__main__":
    sys.exit(main())
