#!/usr/bin/env python3
"""An epoch on many cores of one machine: seconds, processor time and memory by ranks and threads, for several models.

    python jobs/bench/threads/cores.py --graph r.h5 --models sage gat --layouts 1x1 1x16 4x4 16x1

A layout is RANKSxTHREADS. *Faster* is the first layout's seconds over this one's; *processor* is processor seconds of
all ranks over the first layout's; *rank* and *sum* are MiB that training adds, of the largest rank and of all. *Losses*
is the largest relative difference of an epoch's loss from the first layout's, which rounding makes.
Seconds are the least of the epochs after the first. Layouts that need more cores than the process may use are left out.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import measured, parallel, quietly
from tabulate import tabulate

COLUMNS = ["model", "ranks x threads", "seconds", "faster", "processor", "rank", "sum", "losses"]


def main():
    """Entry point; returns the exit code."""
    options = arguments()
    cores = len(os.sched_getaffinity(0))
    layouts = [layout for layout in options.layouts if layout[0] * layout[1] <= cores]
    lines = []
    for model in options.models:
        first = None
        for ranks, threads in layouts:
            with tempfile.TemporaryDirectory() as folder:
                found = run(options, model, ranks, threads, Path(folder))
                first = first or found
                lines.append([model, f"{ranks}x{threads}", *beside(found, first)])
            print("  ".join(map(str, lines[-1])), file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text(json.dumps(lines))
    print(tabulate(lines, COLUMNS, tablefmt="pipe"))
    return 0


def run(options, model, ranks, threads, folder):
    """{quantity: number} of a job."""
    words = ["train", "--memory", "none", *chosen(options, model, threads)]
    words += ["--auto-partition", "--run-dir", folder / "run", "--eval-every", 0]
    quietly(parallel(ranks, "-m", "hpcgnn", *words))
    done = measured(folder / "run")
    growth = done.summary["training_growth_bytes"]
    return {
        "seconds": done.wall,
        "processor": done.processor,
        "rank": growth["max"] / 2**20,
        "sum": growth["sum"] / 2**20,
        "losses": done.losses,
    }


def chosen(options, model, threads):
    words = ["--graph", options.graph, "--model", model, "--threads", threads, "--epochs", options.epochs]
    return [*words, "--dropout", 0, *options.more]


def beside(found, first):
    """The numbers of a line, as text."""
    apart = max(abs(a / b - 1) for a, b in zip(found["losses"], first["losses"], strict=True))
    yield f"{found['seconds']:.3f}"
    yield f"{first['seconds'] / found['seconds']:.2f}"
    yield f"{found['processor'] / first['processor']:.2f}"
    yield from (f"{found[which]:.0f}" for which in ("rank", "sum"))
    yield f"{apart:.0e}" if apart else "same"


def arguments():
    def layout(text):
        ranks, _, threads = text.partition("x")
        if not (ranks.isdigit() and threads.isdigit() and int(ranks) and int(threads)):
            raise argparse.ArgumentTypeError(f"expected RANKSxTHREADS, such as 4x2, got {text!r}")
        return int(ranks), int(threads)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True, metavar="FILE.h5")
    parser.add_argument("--models", nargs="+", default=["sage", "gcn", "gat"], metavar="NAME")
    parser.add_argument(
        "--layouts", nargs="+", type=layout, metavar="RANKSxTHREADS", help="the first is what others are compared with",
        default=[(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (2, 8), (4, 4), (8, 2), (16, 1)],
    )  # fmt: skip
    parser.add_argument("--epochs", type=int, default=5, help="of each run, 2 or more (default: 5)")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the lines as they come")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error("--epochs must be at least 2")
    return options


if __name__ == "__main__":
    sys.exit(main())
