#!/usr/bin/env python3
"""How good is `hpcgnn estimate`? Each case is estimated, and then run, and both stand side by side.

A case is a graph, a model, a precision and a number of ranks. The columns are what was estimated, less what was
measured, in percent of that; `=` where bytes or messages of an epoch are the very numbers of the run's ledger.

  growth     what training adds to the memory of the largest rank
  peak       the largest rank's high-water mark of resident memory
  processor  processor seconds of an epoch on all ranks together: the least of the epochs after the first
  wall       seconds of an epoch: the least of the epochs after the first

The machine is measured first, unless --machine names a file: on as many ranks as there are cores. Other work on the
machine spoils the last two columns, and the machine's file.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import measured, parallel, quietly
from shared.tables import write_csv
from tabulate import tabulate

from hpcgnn.graphfile.storage import GraphFile

EPILOG = """examples:
  python jobs/bench/estimates/estimated.py --graph g1.h5 facebook.h5 --out estimated.csv
  python jobs/bench/estimates/estimated.py --graph g1.h5 --model gat --ranks 1,4 --machine NAME.toml -- --hidden 64
"""
MIXED = {"gcn", "sage"}
COLUMNS = ["graph", "model", "precision", "ranks", "bytes", "messages", "growth", "peak", "processor", "wall"]


def main():
    """Entry point; returns the exit code."""
    options = arguments()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        machine = options.machine
        if machine is None:
            machine = f"{folder}/machine.toml"
            quietly(parallel(cores, "-m", "hpcgnn", "bench", "machine", "-o", machine))
        rows = []
        for case in itertools.product(options.graph, options.model, options.precision, options.ranks):
            if (case[2] == "mixed" and case[1] not in MIXED) or (case[1] == "rgcn" and not typed(case[0])):
                continue
            rows.append(compare(*case, machine, cores, options, Path(folder)))
            print("  ".join(f"{rows[-1][name]}" for name in COLUMNS), flush=True)
            if options.out:
                write_csv(options.out, rows)
    print(tabulate([[row[name] for name in COLUMNS] for row in rows], COLUMNS))
    return 0


def compare(graph, model, precision, ranks, machine, cores, options, folder):
    """The row of one case."""
    chosen = ["--graph", graph, "--model", model, "--precision", precision, "--epochs", options.epochs, *options.more]
    path, run_dir = folder / "estimate.json", folder / f"run-{len(list(folder.iterdir()))}"
    given = [*chosen, "--ranks", ranks, "--machine", machine, "--ranks-per-node", ranks, "--threads", 1]
    quietly([sys.executable, "-m", "hpcgnn", "estimate", *given, "--json", path, "--force"])
    # Without a limit: what has no room would go to disk, as it does by itself where ranks have little.
    train = ["train", "--memory", "none", *chosen, "--threads", 1, "--auto-partition", "--run-dir", run_dir]
    quietly(parallel(ranks, "-m", "hpcgnn", *train))
    estimated, done = json.loads(path.read_text())[0], measured(run_dir)
    kinds = ("halo_forward", "halo_backward", "allreduce")

    def same(name, found):
        return all(estimated[name].get(kind, 0) == found.get(kind, {"sum": 0})["sum"] for kind in kinds)

    return {
        "graph": Path(graph).stem,
        "model": model,
        "precision": precision,
        "ranks": ranks,
        "bytes": "–" if ranks == 1 else "=" if same("bytes_per_epoch", done.last["bytes"]) else "differ",
        "messages": "–" if ranks == 1 else "=" if same("messages_per_epoch", done.last["messages"]) else "differ",
        "growth": percent(estimated["training_growth_bytes"]["max"], done.summary["training_growth_bytes"]["max"]),
        "peak": percent(estimated["peak_rss_bytes"]["max"], done.summary["peak_rss_bytes"]["max"]),
        "processor": percent(estimated["cpu_seconds_per_epoch"], done.processor),
        "wall": percent(estimated["epoch_seconds"]["median"], done.wall),
    }


def typed(graph):
    """Whether the graph has types of edges, which rgcn needs."""
    with GraphFile(graph) as file:
        return file.meta.num_edge_types > 0


def percent(estimated, measured):
    return f"{100 * (estimated / measured - 1):+.1f}"


def arguments():
    def numbers(text):
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    parser.add_argument("--graph", nargs="+", required=True, metavar="FILE.h5")
    parser.add_argument("--model", nargs="+", default=["gcn", "sage", "gat", "rgcn"], metavar="NAME")
    parser.add_argument("--precision", nargs="+", default=["fp32", "mixed"], choices=["fp32", "mixed"])
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4, 8, 16], metavar="P[,P]")
    parser.add_argument("--machine", metavar="FILE.toml", help="do not measure, take this file")
    parser.add_argument("--epochs", type=int, default=5, help="of each run, 2 or more")
    parser.add_argument("--out", metavar="FILE.csv", help="write the table, too")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
