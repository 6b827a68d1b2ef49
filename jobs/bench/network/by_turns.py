#!/usr/bin/env python3
"""Two or more ways to send, one job after another by turns: bytes, messages, waits, processor time and memory.

Each --variant is a name and options of `hpcgnn train`; the first one is what the others are compared with. Per epoch,
the columns are bytes of halo rows of all ranks and of the rank that sends most; messages and bytes that a rank sends
for sums of gradients (an all-reduce counts as one message of its size); seconds of the backward pass, of the reduction
after it, and of the epoch, of the slowest rank; and processor seconds of all ranks. Then there are the memory that
training adds to the largest rank, and seconds of loading. Seconds are medians of the epochs after the first,
processor seconds the least of them; the table has the median of the turns, and in brackets the median of the ratios to
the first variant in the same turn, least to most.
"""

import argparse
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import measured, parallel, quietly
from tabulate import tabulate

EPILOG = """examples:
  python jobs/bench/network/by_turns.py --graph g1.h5 --variant "rows=--halo rows" --variant "least=--halo least"
  python jobs/bench/network/by_turns.py --graph g.h5 --variant "end=--reduce-bucket 0" --variant "early=" \\
      --launch "bash jobs/bench/network/slow_network.sh 1gbit 4" -- --hidden 1024
"""
HALO = ("halo_forward", "halo_backward")


def main():
    """Entry point; returns the exit code."""
    options = arguments()
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.repeat):
            turns.append({})
            for name, words in options.variant:
                turns[-1][name] = run(options, words, Path(folder) / f"{turn}-{name}")
            print(f"turn {turn + 1} of {options.repeat}", file=sys.stderr, flush=True)
    print(tabulate(table(turns), headers="firstrow", disable_numparse=True))
    return 0


def run(options, words, run_dir):
    """What one job measured: {column: number}."""
    command = ["-m", "hpcgnn", "train", "--graph", options.graph, "--model", options.model, "--epochs", options.epochs]
    command += ["--eval-every", 0, "--threads", 1, "--auto-partition", "--run-dir", run_dir, *words, *options.more]
    launch = options.launch.split()
    quietly([*launch, sys.executable, *command] if launch else parallel(options.ranks, *command))
    done = measured(run_dir)
    sent, messages = done.last["bytes"], done.last["messages"].get("allreduce", {"max": 0})
    return {
        "halo MB": done.summary["halo_bytes_per_epoch"] / 1e6,
        "busiest MB": sum(sent[kind]["max"] for kind in HALO if kind in sent) / 1e6,
        "sums": messages["max"],
        "sums MB": sent.get("allreduce", {"max": 0})["max"] / 1e6,
        **{phase: done.seconds[phase] for phase in ("backward", "reduction", "epoch")},
        "processor": done.processor,
        "memory MB": done.summary["training_growth_bytes"]["max"] / 1e6,
        "loading": done.summary["seconds_loading"],
    }


def table(turns):
    """The heading, and a row for each quantity, from [{variant: {quantity: number}}]."""
    first, *others = turns[0]
    rows = [["of an epoch", first, *others]]
    for quantity in turns[0][first]:
        found = {name: [turn[name][quantity] for turn in turns] for name in turns[0]}
        rows.append([quantity, f"{statistics.median(found[first]):.4g}"])
        for name in others:
            ratios = sorted(mine / base for mine, base in zip(found[name], found[first], strict=True) if base)
            beside = f" ({statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else ""
            rows[-1].append(f"{statistics.median(found[name]):.4g}{beside}")
    return rows


def arguments():
    def variant(text):
        name, equals, words = text.partition("=")
        if not name or not equals:
            raise argparse.ArgumentTypeError(f"expected NAME=OPTIONS of hpcgnn train, got {text!r}")
        return name, shlex.split(words)

    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graph", required=True, metavar="FILE.h5")
    parser.add_argument("--variant", type=variant, action="append", required=True, metavar="NAME=OPTIONS")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5, help="of each run, 2 or more")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: 3)")
    parser.add_argument("--launch", default="", help="what starts the ranks (default: mpiexec -n RANKS)")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    options = parser.parse_args()
    if options.epochs < 2 or options.repeat < 1:
        parser.error("--epochs must be at least 2, --repeat at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
