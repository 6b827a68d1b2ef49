#!/usr/bin/env python3
"""Training in a fraction of the memory that it takes, under a limit of the kernel: the same curve, at what price?

The job runs twice. The second run has --memory at a fraction of the memory of all its ranks, inside a control
group with that limit (page cache included, no swap). Both learning curves must agree to the bit. The table has the
memory of both, seconds of an epoch, and bytes written to and read from the scratch files in an epoch, measured and
foretold. A line shows whether the last epochs are as the first ones.

Needs root, for the control group (version 1 or 2); --no-limit goes without one.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
from shared.launched import measured, parallel, quietly
from shared.limited import Group
from tabulate import tabulate

from hpcgnn.report.read import read_rank_records, read_summary

EPILOG = """example:
  python jobs/bench/memory/less_memory.py --graph g1.h5 --share 4 --epochs 4 -- --model sage --layers 24 --hidden 256
"""


def main():
    """Entry point; returns the exit code."""
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        common = ["-m", "hpcgnn", "train", "--graph", options.graph, "--epochs", options.epochs, "--eval-every", 0]
        common += ["--threads", options.threads, *options.more]
        free, held = Path(folder, "free"), Path(folder, "held")
        quietly(parallel(options.ranks, *common, "--run-dir", free))
        peak = sum(rank["peak_rss_bytes"] for rank in records(free))
        limit = options.memory << 20 if options.memory else int(peak / options.share)
        within = ["--memory", f"{(limit - options.spare * 2**20) / 2**20:.0f}M", "--scratch", options.scratch]
        group = Group(None if options.no_limit else limit)
        if not (group.limited or options.no_limit):
            sys.exit("cannot limit memory by a control group; run as root, or with --no-limit")
        try:
            quietly(parallel(options.ranks, *common, *within, "--run-dir", held), group.enter)
        finally:
            group.close()
        curves = [[json.loads(line)["loss"] for line in open(f"{run}/metrics.jsonl")] for run in (free, held)]
        print(tabulate([row(free, "all that it takes"), row(held, f"--memory {within[1]}")], headers="keys"))
        print(f"limit of all ranks together: {limit / 2**30:.2f} GiB, {peak / limit:.2f} times less than it takes")
        print("learning curves: " + ("the same bits" if curves[0] == curves[1] else f"DIFFERENT: {curves}"))
        print(f"slower: {measured(held).wall / measured(free).wall:.2f} times")
        print("within the limit, median of an epoch in the first fifth of them and in the last: " + from_to(held))
        return int(curves[0] != curves[1])


def row(run, name):
    """Of one run."""
    ranks, each = records(run), [json.loads(line) for line in open(f"{run}/metrics.jsonl")][1:]

    def scratch(kind):
        return statistics.median(epoch["bytes"].get(kind, {"sum": 0})["sum"] for epoch in each) / 2**30

    return {
        "memory": name,
        "peak of all ranks (GiB)": round(sum(rank["peak_rss_bytes"] for rank in ranks) / 2**30, 2),
        "least s/epoch": round(measured(run).wall, 2),
        "written per epoch (GiB)": round(scratch("scratch_written"), 2),
        "read per epoch (GiB)": round(scratch("scratch_read"), 2),
        "waited for the disk (s)": round(
            max(rank.get("scratch", {"waiting_seconds": 0})["waiting_seconds"] for rank in ranks), 2
        ),
    }


def from_to(run):
    """Whether a run stays as it begins; without the first epoch, which also makes the kept tensors."""
    each = [json.loads(line) for line in open(f"{run}/metrics.jsonl")][1:]
    some = max(1, len(each) // 5)

    def medians(of):
        return " to ".join(f"{statistics.median(map(of, part)):.2f}" for part in (each[:some], each[-some:]))

    kinds = {"written": "scratch_written", "read": "scratch_read"}
    moved = [f"{medians(lambda e: e['bytes'].get(k, {'sum': 0})['sum'] / 2**30)} GiB {n}" for n, k in kinds.items()]
    return f"{medians(lambda e: e['seconds']['epoch']['max'])} s, {', '.join(moved)}"


def records(run):
    return read_rank_records(run, read_summary(Path(run))["ranks"])


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    parser.add_argument("--graph", required=True, metavar="FILE.h5")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of a rank")
    parser.add_argument("--epochs", type=int, default=5, help="2 or more")
    parser.add_argument("--share", type=float, default=4.0, help="times less memory than the job takes")
    parser.add_argument("--memory", type=int, metavar="MIB", help="the limit itself, in place of --share")
    parser.add_argument(
        "--spare", type=int, default=64, metavar="MIB", help="of the limit that --memory is not told of"
    )
    parser.add_argument("--scratch", default=os.environ.get("TMPDIR", "/tmp"), metavar="DIR")
    parser.add_argument("--no-limit", action="store_true", help="no control group: --memory alone")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
