#!/usr/bin/env python3
"""How long ranks wait for the sum of their gradients: all summed at the end, or begun layer by layer before.

One job with `--reduce-bucket 0` and with each of the given sizes, of each `--reduce-dtype`, by turns. Columns are the
messages and bytes that a rank sends for sums in an epoch (an all-reduce counts as one message of its size), and seconds
of the backward pass, of the reduction after it, and of an epoch: of the slowest rank, the median of the epochs after
the first, and of the turns. Sums that are under way share cores and links with the backward pass: what they cost it is
in its column.
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
  python jobs/bench/network/reduction.py --graph graph.h5 --ranks 4
  python jobs/bench/network/reduction.py --graph g.h5 --launch "bash jobs/bench/network/slow_network.sh 1gbit 4"
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
    parser.add_argument("--dtypes", nargs="+", default=["fp32"], metavar="TYPE", help="fp32, bf16 (default: fp32)")
    parser.add_argument("--epochs", type=int, default=5, help="of each run, 2 or more")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: 3)")
    parser.add_argument("--launch", default="", help="what starts the ranks (default: mpiexec -n RANKS)")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    options = parser.parse_args()
    if options.epochs < 2 or options.repeat < 1:
        parser.error("--epochs must be at least 2, --repeat at least 1")
    found = {(dtype, size): [] for dtype in options.dtypes for size in (0.0, *options.sizes)}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.repeat):
            for dtype, size in found:
                done = run(options, dtype, size, Path(folder) / f"{turn}-{dtype}-{size:g}")
                found[dtype, size].append(done)
                times = ", ".join(f"{phase} {done.seconds[phase]:.3f} s" for phase in PHASES)
                print(f"turn {turn + 1}, {dtype}, {size:g} MiB: {times}", flush=True)
    rows = []
    for (dtype, size), turns in found.items():
        record = turns[0].last
        sent = record["messages"]["allreduce"]["max"], f"{record['bytes']['allreduce']['max'] / 1e6:.1f}"
        times = (statistics.median(turn.seconds[phase] for turn in turns) for phase in PHASES)
        rows.append([dtype, f"{size:g}", *sent, *(f"{seconds:.3f}" for seconds in times)])
    headers = ["--reduce-dtype", "--reduce-bucket", "messages of a rank", "MB", *PHASES]
    print(tabulate(rows, headers, disable_numparse=True, colalign=["left"] + ["right"] * 6))
    return 0


def run(options, dtype, size, run_dir):
    """The Measured of one job."""
    command = ["-m", "hpcgnn", "train", "--graph", options.graph, "--epochs", options.epochs, "--reduce-dtype", dtype]
    command += ["--reduce-bucket", size, "--threads", 1, "--auto-partition", "--eval-every", 0, "--run-dir", run_dir]
    command += options.more
    launch = options.launch.split()
    quietly([*launch, sys.executable, *command] if launch else parallel(options.ranks, *command))
    return measured(run_dir)


if __name__ == "__main__":
    sys.exit(main())
