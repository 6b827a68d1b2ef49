#!/usr/bin/env python3
"""Mean accuracy over seeds: trains the same configuration once for every seed and prints the table.

    python jobs/bench/accuracy/accuracy.py --ranks 4 --seeds 10 -- --graph cora.h5 --model gcn --hidden 16 --epochs 200

Everything after `--` goes to `hpcgnn train`. Runs that are complete in --out are not repeated; the table is also
written to OUT/accuracy.json.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import parallel, quietly
from tabulate import tabulate
from tqdm import tqdm


def train(ranks, seed, run_dir, options):
    """One run, unless its summary is there already. Returns the summary. Raises SystemExit if the run fails."""
    summary = run_dir / "summary.json"
    if not summary.exists():
        command = ["-m", "hpcgnn", "train", *options, "--seed", seed, "--run-dir", run_dir, "--resume"]
        quietly(parallel(ranks, *command))
    return json.loads(summary.read_text())


def best_epoch(summary):
    """The epoch of the best validation, counted from 1; runs of before counted from 0."""
    return summary["best_epoch"] + 1 - summary.get("first_epoch", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks of each run (default: 4)")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, 0, 1, 2, … (default: 10)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/accuracy"), help="where the runs go (default: runs/accuracy)"
    )
    parser.add_argument("options", nargs=argparse.REMAINDER, help="-- and the options of `hpcgnn train`")
    arguments = parser.parse_args()
    options = arguments.options[1:] if arguments.options[:1] == ["--"] else arguments.options
    arguments.out.mkdir(parents=True, exist_ok=True)
    seeds = range(arguments.seeds)
    summaries = [
        train(arguments.ranks, seed, arguments.out / f"seed-{seed}", options) for seed in tqdm(seeds, unit="run")
    ]
    tests = [summary["test_at_best_val"] for summary in summaries]
    print(
        tabulate(
            [(seed, s["best_val"], best_epoch(s), s["test_at_best_val"]) for seed, s in zip(seeds, summaries)],
            headers=["seed", "best val", "epoch", "test there"],
            floatfmt=".4f",
        )
    )
    deviation = statistics.stdev(tests) if len(tests) > 1 else 0.0
    print(
        f"test at best validation: mean {statistics.mean(tests):.4f}, standard deviation {deviation:.4f}, "
        f"{len(tests)} seeds"
    )
    result = {
        "options": options,
        "ranks": arguments.ranks,
        "test_at_best_val": tests,
        "mean": statistics.mean(tests),
        "stdev": deviation,
    }
    (arguments.out / "accuracy.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
