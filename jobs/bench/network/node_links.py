#!/usr/bin/env python3
"""What crosses between nodes, and how long an epoch takes, with `--intra-node messages` and `shared`, over slow links.

    python jobs/bench/network/node_links.py --graph rmat.h5 planted.h5 --layouts 2x2 4x2 2x4

Nodes are network namespaces (slow_network.sh, needs root). For each graph, model and layout (NODESxRANKS) the job runs
at 100 Mbit/s and at 1 Gbit/s, with more epochs at the latter. Bytes are what the nodes' own interfaces say that they
have sent: the difference of both jobs over the difference of their epochs, which leaves starting and loading out.
Counted are the halo rows of `hpcgnn estimate`, and once per node the sums of gradients. Seconds are the median of the
epochs after the first. Where a cell has two numbers, the first is of `messages`, the second of `shared`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import measured, quietly
from tabulate import tabulate

EPOCHS = {"100mbit": 3, "1gbit": 9}
WAYS = "messages", "shared"
MODELS = {"sage": "--layers 3 --hidden 64", "gat": "--layers 3 --hidden 16 --heads 4"}
COLUMNS = ["graph", "model", "nodes x ranks", "counted, MB", "sent, MB", "sent over counted", "shared over messages"]
COLUMNS += [f"s at {rate}bit/s" for rate in ("100 M", "1 G")]


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="+", required=True, metavar="FILE.h5")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--layouts", nargs="+", default=["2x2", "4x2", "2x4"], metavar="NODESxRANKS")
    options = parser.parse_args()
    lines = []
    for graph in options.graph:
        for model in options.models:
            for layout in options.layouts:
                lines.append(compared(graph, model, layout))
                print("\t".join(map(str, lines[-1])), file=sys.stderr, flush=True)
    print(tabulate(lines, COLUMNS, tablefmt="pipe"))
    return 0


def compared(graph, model, layout):
    """The line of the table of one job in both ways."""
    found = []
    for way in WAYS:
        options = ["--graph", graph, "--model", model, *MODELS[model].split(), "--eval-every", 0, "--intra-node", way]
        counted = count(options, *map(int, layout.split("x")))
        runs = {rate: run(rate, layout, [*options, "--epochs", epochs]) for rate, epochs in EPOCHS.items()}
        (early, slow), (late, fast) = runs.values()
        sent = (late - early) / (EPOCHS["1gbit"] - EPOCHS["100mbit"])
        found.append((counted / 1e6, sent / 1e6, sent / counted, slow, fast))
    columns = zip(*found, (2, 2, 3, 2, 2), strict=True)
    pairs = [f"{one:.{digits}f}, {other:.{digits}f}" for one, other, digits in columns]
    share = f"{found[1][1] / found[0][1]:.3f}"
    return [Path(graph).stem, model, layout, *pairs[:3], share, *pairs[3:]]


def count(options, nodes, per_node):
    """The bytes that cross between nodes in an epoch, by `hpcgnn estimate`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "estimate.json"
        place = ["--ranks", nodes * per_node, "--ranks-per-node", per_node, "--json", file]
        quietly([sys.executable, "-m", "hpcgnn", "estimate", *options, *place])
        (row,) = json.loads(file.read_text())
    return row["sent_by_nodes"]["bytes"]["sum"] + row["allreduce_bytes_per_epoch"] / per_node


def run(rate, layout, options):
    """(bytes that the interfaces of all nodes sent, seconds of an epoch) of a job."""
    launcher = Path(__file__).with_name("slow_network.sh")
    with tempfile.TemporaryDirectory() as folder:
        sent, run_dir = Path(folder) / "sent", Path(folder) / "run"
        command = [sys.executable, "-m", "hpcgnn", "train", *options, "--threads", 1, "--run-dir", run_dir]
        done = subprocess.run(
            ["bash", str(launcher), rate, layout, *map(str, command)],
            capture_output=True,
            text=True,
            env={**os.environ, "SENT": str(sent)},
        )
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}\nexit code {done.returncode}: {done.stdout}{done.stderr}")
        total = sum(int(line.split()[0]) for line in sent.read_text().splitlines())
        return total, measured(run_dir).seconds["epoch"]


if __name__ == "__main__":
    sys.exit(main())
