#!/usr/bin/env python3
"""Rows that the steps of `--schedule batches` compute in an epoch, over those of one pass, for two layers.

    python jobs/bench/accuracy/shares.py graph.h5 --steps 2,4,8,16

A pass computes rows of the first layer that the training nodes read. Each step does so for its share. `drawn` has
clusters dealt at random, as the schedule has; `consecutive` has neighbours in the file in one share. `inside` is the
share of edges with both ends in one share, whose gradients `--schedule historical` sees. Counts alone, one process.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
from tabulate import tabulate


def needed(train, source, target):
    """How many rows these training nodes (bool (n,)) and their in-neighbours are."""
    seen = train.copy()
    seen[source[train[target]]] = True
    return int(seen.sum())


def main():
    """Count, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path, help="a graph file")
    parser.add_argument("--steps", default="2,4,8,16", help="default: 2,4,8,16")
    options = parser.parse_args()
    with h5py.File(options.graph) as file:
        source, offsets = file["topology/indices"][:], file["clusters/offsets"][:]
        target = np.repeat(np.arange(len(file["nodes/split"])), np.diff(file["topology/indptr"][:].astype(np.int64)))
        train = file["nodes/split"][:] == 1
    cluster, count = np.searchsorted(offsets, np.arange(len(train)), side="right") - 1, len(offsets) - 1
    once, rows = needed(train, source, target), []
    for steps in map(int, options.steps.split(",")):
        row = [count, steps]
        for order in (np.random.default_rng(0).permutation(count), np.arange(count)):
            share_of = np.empty(count, int)
            share_of[order] = np.arange(count) * steps // count
            share = share_of[cluster]
            work = sum(needed(train & (share == number), source, target) for number in range(steps))
            row += [f"{work / once:.2f}", f"{(share[source] == share[target]).mean():.2f}"]
        rows.append(row)
    headers = ["clusters", "steps", "rows, drawn", "inside, drawn", "rows, consecutive", "inside, consecutive"]
    print(tabulate(rows, headers, "pipe", disable_numparse=True))


if __name__ == "__main__":
    main()
