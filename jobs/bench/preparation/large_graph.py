"""A graph of any size from raw edges to training, within a memory limit: the costs of each step.

    python jobs/bench/preparation/large_graph.py --folder /scratch/large --edges 1e7,1e8,1e9 --memory-limit 16G

For each number of edges a raw R-MAT graph is written as arrays in a folder (edges in random order, with duplicates and
self loops, as a download would be). It is imported, made symmetric, partitioned, and trained for an epoch. Each step
runs in a control group with the memory limit, where one can be made. The table has seconds, processor seconds, the
memory of all processes of a step together (without page cache), bytes of it per edge, and disk. With more than one
size, lines through the origin and the largest size predict the costs of --predict edges.

R-MAT: Chakrabarti, Zhan, Faloutsos, SDM 2004, with Graph500's probabilities.
"""

import argparse
import csv
import itertools
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.limited import Group, measure
from tabulate import tabulate

from partition_tools.generators import rmat
from partition_tools.generators.spec import Spec
from partition_tools.generators.tasks import ClassFeatures, random_split
from partition_tools.out_of_core.sorting import in_order
from partition_tools.workspace.budget import parse_memory

BLOCK = 1 << 20
#: Pairs drawn for each undirected edge wanted: some are drawn twice.
SPARE = 1.03
COLUMNS = ("edges", "step", "seconds", "processor_seconds", "anonymous", "disk", "code")


def parse():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the graphs are made; some 40 bytes an edge")
    parser.add_argument("--edges", default="1e7", help="directed edges, such as 1e7,1e8,1e9")
    parser.add_argument("--degree", type=float, default=31.25, help="mean in-degree (default 31.25)")
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--memory-limit", default="16G", help="of the control group (default 16G)")
    parser.add_argument("--memory", help="what the tools are told to take (default: half of what is free)")
    parser.add_argument("--method", default="auto", help="how to partition")
    parser.add_argument("--clusters", help="number of clusters (default: partition's own)")
    parser.add_argument("--ranks", default="8,64", help="maps to make")
    parser.add_argument("--train-ranks", type=int, default=8, help="ranks of the training run; 0 for none")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--train-options", default="", help="--train-options='--prune none': more of train's")
    parser.add_argument("--steps", default="raw,import,partition,train", help="steps to do; others are taken as done")
    parser.add_argument("--output", type=Path, help="CSV file for the figures, to which lines are added")
    parser.add_argument("--predict", type=float, help="directed edges of a graph to predict, such as 3.2e9")
    parser.add_argument("--keep", action="store_true", help="leave the graphs in the folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write-raw", type=float, help=argparse.SUPPRESS)  # the step `raw`, as a process of its own
    return parser.parse_args()


def spec_of(options, edges):
    """The Spec of a graph with this number of directed edges."""
    nodes = max(64, round(edges / options.degree))
    return Spec(nodes, options.degree, options.features, options.classes, seed=options.seed)


def write_raw(options, edges, folder):
    """The raw graph as arrays in a folder: edge_index, x, y and masks."""
    spec = spec_of(options, edges)
    pairs = round(spec.num_edges * SPARE)
    folder.mkdir(parents=True, exist_ok=True)
    draw, labels = rmat.edge_drawer(spec)
    edge_index = np.lib.format.open_memmap(folder / "edge_index.npy", "w+", np.int32, (2, pairs))
    place = 0
    for ends in in_order(lambda block: draw(spec.random("edges", block), BLOCK), itertools.count()):
        edge_index[:, place : place + len(ends[0])] = np.stack(ends)[:, : pairs - place]
        place += len(ends[0])
        if place >= pairs:
            break
    features = ClassFeatures(spec, labels)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float16, features.shape)
    for start in range(0, spec.nodes, BLOCK):
        x[start : start + BLOCK] = features[start : start + BLOCK]
    np.save(folder / "y.npy", labels.astype(np.int32))
    for name, mask in random_split(spec).items():
        np.save(folder / f"{name}_mask.npy", mask)


def commands(options, edges, folder):
    """{step: command}."""
    tools = [sys.executable, "-m", "partition_tools"]
    memory = ["--memory", options.memory] if options.memory else []
    raw, graph, parts = folder / "raw", folder / "graph.h5", folder / "partitioned.h5"
    again = [sys.executable, __file__, *sys.argv[1:], "--write-raw", str(edges)]
    clusters = ["--clusters", options.clusters] if options.clusters else []
    imported = ["--format", "npz", "--force", "--undirected", *memory]
    imported += ["--set", "edges.self_loops=remove", "--set", "features.dtype=fp16"]
    split = ["--ranks", options.ranks, "--method", options.method, *clusters, *memory]
    shape = ["--model", "sage", "--hidden", str(options.hidden), "--layers", str(options.layers), "--threads", "1"]
    shape += ["--epochs", "1", "--eval-every", "0", *shlex.split(options.train_options), "--run-dir", folder / "run"]
    launcher = ["mpiexec", "-n", str(options.train_ranks)]
    return {
        "raw": again,
        "import": [*tools, "import", raw, "-o", graph, *imported],
        "partition": [*tools, "partition", "add", graph, "-o", parts, "--force", *split],
        "train": [*launcher, "hpcgnn", "train", "--graph", parts, *shape],
    }


def main():
    """Do the steps for every size; returns the exit code."""
    options = parse()
    if options.write_raw:
        write_raw(options, options.write_raw, options.folder / f"{options.write_raw:g}" / "raw")
        return 0
    steps = options.steps.split(",")
    rows = []
    for edges in map(float, options.edges.split(",")):
        folder = options.folder / f"{edges:g}"
        folder.mkdir(parents=True, exist_ok=True)
        group = Group(parse_memory(options.memory_limit))
        limit = options.memory_limit if group.limited else "no limit (a control group cannot be made)"
        for step, command in commands(options, edges, folder).items():
            if step not in steps or (step == "train" and not options.train_ranks):
                continue
            print(f"{edges:g} edges, {step}, {limit}: {' '.join(map(str, command))}", flush=True)
            found = measure(list(map(str, command)), group, folder, folder / f"{step}.log", OMP_NUM_THREADS="1")
            rows.append({"edges": edges, "step": step, **asdict(found)})
            if options.output:
                _add(options.output, rows[-1])
            if found.code:
                group.close()
                print(f"{step} failed with code {found.code}; its output is in {folder / f'{step}.log'}")
                return 1
            if step == "import" and not options.keep:
                shutil.rmtree(folder / "raw", ignore_errors=True)
        group.close()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(table(rows))
    if options.predict:
        print(prediction(rows, options.predict))
    return 0


def _add(path, row):
    new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def table(rows):
    """The figures for people."""
    heading = ("edges", "step", "seconds", "ns an edge", "processor s", "memory MB", "bytes an edge", "disk MB")
    lines = [
        (
            f"{row['edges']:g}",
            row["step"],
            f"{row['seconds']:.0f}",
            f"{row['seconds'] / row['edges'] * 1e9:.0f}",
            f"{row['processor_seconds']:.0f}",
            f"{row['anonymous'] / 1e6:.0f}",
            f"{row['anonymous'] / row['edges']:.1f}",
            f"{row['disk'] / 1e6:.0f}",
        )
        for row in rows
    ]
    return tabulate(lines, heading, stralign="right")


def prediction(rows, edges):
    """The costs of a graph of this size, at the costs of an edge of the largest one measured."""
    largest = max(row["edges"] for row in rows)
    scales = [(row, edges / row["edges"]) for row in rows if row["edges"] == largest]
    lines = [(row["step"], f"{row['seconds'] * x / 3600:.1f}", f"{row['disk'] * x / 1e9:.0f}") for row, x in scales]
    return f"{edges:.1e} edges at the seconds and bytes an edge of {largest:g}:\n" + tabulate(
        lines, ("step", "hours", "disk GB"), stralign="right"
    )


if __name__ == "__main__":
    sys.exit(main())
