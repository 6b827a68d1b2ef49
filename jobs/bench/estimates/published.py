#!/usr/bin/env python3
"""The estimate beside published runs that nobody here made: seconds of an epoch, slopes, and sums of rows beside rows.

    python jobs/bench/estimates/published.py [--graph products reddit ...] [--out FILE.csv]

No graph is needed: graphs are known by their numbers (`--stats`), machines by data sheets. Nothing is fitted to the
rows: the share of cut edges and the exponent of degrees are those of docs/estimating.md, for all graphs. What was
published is not this program's, so slopes and ratios come first, and seconds after.

SuperGCN on Fugaku: raw results of its authors, seconds of an epoch of GraphSAGE with 3 layers and dropout 0.5, ranks of
12 threads, 4 on a node: github.com/zhuangbility111/GNN_benchmark at commit 7190acf (2023-12-04), files
self_benchmark/a64fx/experiment_result/multi_nodes/*.xlsx. `rows`: fp32; `sums`: fp32 with pre- and post-aggregation, a
vertex cover as of `--halo least`. SAR: Mostafa, "Sequential Aggregation and Rematerialization", MLSys 2022,
arxiv.org/abs/2111.06483: 3 x 256 with batch norm on 32, 64 and 128 nodes of 2 x 36 cores.
"""

import argparse
import csv
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
import itertools

from shared.tables import write_csv
from tabulate import tabulate
from tqdm import tqdm

from hpcgnn.__main__ import registry_choices
from hpcgnn.config import make_config
from hpcgnn.estimate.arguments import CUT_SHARE, Stats
from hpcgnn.estimate.counts.sources import AssumedGraph
from hpcgnn.estimate.machine.machine import read_machine
from hpcgnn.estimate.seconds import PARALLEL, seconds

MACHINES = Path(__file__).parents[2] / "machines"
EXPONENT = 2.3  # of degrees, as in docs/estimating.md
MISS = 1.5
# As those programs do: every layer exchanges its input, nothing is left out, and one exchange has all rows.
ALIKE = {"model": "sage", "layers": 3, "dropout": 0.5, "keep_input": "never", "prune": "none", "eval_every": 0}


@dataclass(frozen=True)
class Study:
    """machine: name of its file; stats: of the graph; train: share of the training nodes; options: of training. The
    seconds are in published.csv, by graph and ranks: with rows, and with sums of rows where they were measured.
    """

    machine: str
    stats: Stats
    train: float
    options: dict


def fugaku(nodes, edges, features, classes, train, hidden):
    """A Study of SuperGCN."""
    options = {**ALIKE, "hidden": hidden, "halo_buffer": 2048.0}
    return Study("a64fx-tofud.toml", Stats(nodes, edges, features, classes, EXPONENT), train, options)


# Nodes, edges, features, classes, training nodes: ogb.stanford.edu/docs/nodeprop (products and papers100M, with edges
# in both directions), GraphSAGE's Reddit, CAGNET's proteins with the widths of super_gnn/config/fugaku/proteins.yaml.
STUDIES = {
    "products": fugaku(2_449_029, 123_718_280, 100, 47, 0.08, 256),
    "reddit": fugaku(232_965, 114_615_892, 602, 41, 0.66, 256),
    "proteins": fugaku(8_745_542, 1_058_120_062, 128, 256, 0.5, 256),
    "papers100M": fugaku(111_059_956, 3_231_371_744, 128, 172, 0.011, 128),
    "papers100M, SAR": Study(
        "icelake-hdr.toml",
        Stats(111_059_956, 3_231_371_744, 128, 172, EXPONENT),
        0.011,
        {**ALIKE, "hidden": 256, "norm": "batch", "halo_buffer": 512.0},
    ),
}


def published_seconds(name, halo):
    """{ranks: seconds of an epoch} of a study. halo: rows or sums."""
    with open(Path(__file__).with_name("published.csv"), newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["graph"] == name and row[halo]]
    return {int(row["ranks"]): float(row[halo]) for row in rows}


def main():
    """Print the tables."""
    options = arguments()
    found = []
    for name in options.graph:
        study = STUDIES[name]
        for halo in ("rows", "sums"):
            published = published_seconds(name, halo)
            chosen = [ranks for ranks in published if not options.ranks or ranks in options.ranks]
            graph = AssumedGraph(study.stats, options.cut_share, study.train)
            for ranks in tqdm(chosen, desc=f"{name}, {halo}", leave=False, disable=not sys.stderr.isatty()):
                found.append(beside(name, study, graph, halo, ranks, published[ranks]))
                print(
                    "  ".join(
                        f"{key} {value:.4g}" if isinstance(value, float) else f"{value}"
                        for key, value in found[-1].items()
                    ),
                    flush=True,
                )
    print_tables(found)
    if options.out:
        write_csv(options.out, found)
    return 0


def beside(name, study, graph, halo, ranks, published):
    """The row of one published run."""
    machine = read_machine(MACHINES / study.machine)
    options = {"graph": "none", **study.options, "halo": "least" if halo == "sums" else "rows"}
    config = make_config({**options, "threads": machine.threads}, registry_choices())
    told = seconds(graph.forecast(config, ranks), machine)
    shared = sum(told.parts[part] for part in PARALLEL)
    return {
        "graph": name,
        "halo": halo,
        "ranks": ranks,
        "published": published,
        "estimated": float(told.epoch),
        "ratio": float(told.epoch) / published,
        "kernels": float(shared),
        "one thread": float(told.parts["serial"]),
        "messages": float(told.parts["messages"]),
        "reduction": float(told.parts["reduction"]),
    }


def print_tables(found):
    """All rows; then how much faster many ranks are than few; then sums beside rows."""
    print(tabulate(found, "keys", floatfmt=".3g"))
    seconds_of = {(row["graph"], row["halo"], row["ranks"]): (row["published"], row["estimated"]) for row in found}
    slopes, ratios = [], []
    for name in dict.fromkeys(row["graph"] for row in found):
        for halo in ("rows", "sums"):
            ranks = [key[2] for key in seconds_of if key[:2] == (name, halo)]
            steps = dict.fromkeys([*itertools.pairwise(ranks), *[(64, 1024)] * ({64, 1024} <= {*ranks})])
            for few, many in steps:
                pair = [seconds_of[name, halo, few][at] / seconds_of[name, halo, many][at] for at in (0, 1)]
                slopes.append([name, halo, f"{few} to {many:,}", *pair, pair[1] / pair[0]])
        for (graph, halo, ranks), sums in seconds_of.items():
            if (graph, halo) == (name, "sums"):
                rows = seconds_of[name, "rows", ranks]
                pair = [sums[at] / rows[at] for at in (0, 1)]
                ratios.append([name, ranks, *pair, pair[1] / pair[0]])
    for what, lines, headers in (
        ("times as fast", slopes, ["graph", "halo", "ranks"]),
        ("seconds with sums / with rows", ratios, ["graph", "ranks"]),
    ):
        if lines:
            print(f"\n{what}")
            print(tabulate(lines, [*headers, "published", "estimated", "ratio"], floatfmt=".3g"))
            misses = sum(not 1 / MISS <= line[-1] <= MISS for line in lines)
            print(f"{misses} of {len(lines)} miss by more than {MISS}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--cut-share", type=float, default=CUT_SHARE, help="of the edges, on very many ranks")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], help="these alone")
    parser.add_argument("--out", metavar="FILE.csv", help="write the rows, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
