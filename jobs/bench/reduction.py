#!/usr/bin/env python3
"""How long ranks wait for the sum of their gradients: all summed at the end, or begun layer by layer before.

One job with `--reduce-bucket 0` and with each of the given sizes, by turns. The columns are how many sums an epoch has,
and their bytes for each rank, seconds of the backward pass, of the reduction after it, and of an epoch: of the slowest
rank, the median of the epochs after the first, of all turns. What the sums take of the backward pass, because they have
its cores or its link, is in its column.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from measuring.launched import measured, parallel, quietly
from tabulate import tabulate

EPILOG = """examples:
  python jobs/bench/reduction.py --graph graph.h5 --ranks 4
  python jobs/bench/reduction.py --graph g.h5 --launch "bash jobs/bench/slow_network.sh 1gbit 4" -- --hidden 1024
"""
PHASES = ("backward", "reduction", "epoch")


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graph", required=True, metavar="FILE.h5")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1.0], metavar="MIB", help="besides 0 (default: 1)")
    parser.add_argument("--epochs", type=int, default=5, help="of each run, 2 or more")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: 3)")
    parser.add_argument("--launch", default="", help="what starts the ranks (default: mpiexec -n RANKS)")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    options = parser.parse_args()
    if options.epochs < 2 or options.repeat < 1:
        parser.error("--epochs must be at least 2, --repeat at least 1")
    found = {size: [] for size in (0.0, *options.sizes)}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.repeat):
            for size in found:
                found[size].append(run(options, size, Path(folder) / f"{turn}-{size:g}"))
                print(f"turn {turn + 1}, --reduce-bucket {size:g}: {found[size][-1].last['seconds']}", flush=True)
    rows = []
    for size, turns in found.items():
        record = turns[0].last
        sums = record["messages"]["allreduce"]["max"], record["bytes"]["allreduce"]["max"]
        times = [statistics.median(turn.seconds[phase] for turn in turns) for phase in PHASES]
        rows.append([f"{size:g}", sums[0], f"{sums[1] / 1e6:.1f}", *(f"{seconds:.3f}" for seconds in times)])
    print(tabulate(rows, ["--reduce-bucket", "sums", "MB of a rank", *PHASES], disable_numparse=True))
    return 0


def run(options, size, run_dir):
    """The Measured of one job."""
    command = ["-m", "hpcgnn", "train", "--graph", options.graph, "--reduce-bucket", size, "--epochs", options.epochs]
    command += ["--threads", 1, "--auto-partition", "--eval-every", 0, "--run-dir", run_dir, *options.more]
    launch = options.launch.split()
    quietly([*launch, sys.executable, *command] if launch else parallel(options.ranks, *command))
    return measured(run_dir)


if __name__ == "__main__":
    sys.exit(main())
