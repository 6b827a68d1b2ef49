#!/usr/bin/env python3
"""Rows or sums of rows: one job with `--halo rows` and with `--halo least`, by turns.

The columns are least over rows: halo bytes of an epoch, bytes of the rank that sends most, processor seconds of an
epoch on all ranks (the least of the epochs after the first; the median of the turns, and their range), seconds of an
epoch likewise, the memory that training adds to the largest rank, and how many epochs' time loading takes longer.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import measured, parallel, quietly
from tabulate import tabulate

EPILOG = """examples:
  python jobs/bench/network/fewest_rows.py --graph g1.h5 --ranks 8 --model gcn sage
  python jobs/bench/network/fewest_rows.py --graph r2m.h5 --ranks 8 -- --hidden 64
  python jobs/bench/network/fewest_rows.py --graph g1.h5 --launch "bash jobs/bench/network/slow_network.sh 100mbit 4"
"""
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
    parser.add_argument("--launch", default="", help="what starts the ranks (default: mpiexec -n RANKS)")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    options = parser.parse_args()
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
