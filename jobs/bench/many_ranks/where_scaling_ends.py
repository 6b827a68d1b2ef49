#!/usr/bin/env python3
"""Where does scaling end? An epoch of more and more ranks, replayed turn by turn, and what it loses to what.

    python jobs/bench/many_ranks/where_scaling_ends.py --graph GRAPH.h5 --machine jobs/machines/icelake-hdr.toml \\
        --ranks 16,64,256,1024,4096 --out FILE.csv --plot FILE.png [-- options of hpcgnn train]

Halos, rounds, turns and messages are counted from the file and the map for every rank; work and rates are those of
`hpcgnn estimate`: the threads of a rank share the work of kernels, and one of them has the calls, the messages and the
collectives (--message says what a message takes of it). The columns are the seconds of an epoch, if ranks have to do
with

  one thread   calls, layers, wake-ups: what does not become less with more ranks or threads; of the next column
  imbalance    work, of ranks that are not alike, and nothing else
  latency      messages: their latency and processor time, and the collectives
  links        links as the machine has them, all nodes sending at a time
  noise        turns that take longer or shorter by chance (--noise)
  straggler    one rank that is slower (--straggler)

each with all of those before it.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
import numpy as np
from replayed import Links, Troubles, epoch_seconds, passages
from shared.tables import write_csv
from tabulate import tabulate
from tqdm import tqdm

from hpcgnn.__main__ import build_parser, registry_choices
from hpcgnn.cli.arguments import given_options
from hpcgnn.config import make_config
from hpcgnn.estimate.command import PICTURES, forecasts
from hpcgnn.estimate.machine.machine import read_machine
from hpcgnn.estimate.seconds import seconds
from hpcgnn.estimate.trial.trial import Experiment
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plan.run_plan import plan
from hpcgnn.records import replaced_by
from hpcgnn.report.style import drawing, legend

SEEDS = 3
LOSSES = ["imbalance", "latency", "links", "noise", "straggler"]


def main():
    """Print the table."""
    options = arguments()
    if options.plot and Path(options.plot).suffix.lower() not in PICTURES:
        sys.exit(f"cannot draw {options.plot}: expected a name that ends in {', '.join(PICTURES)}")
    machine = read_machine(options.machine)
    if options.message is not None:
        machine = replace(machine, network=replace(machine.network, cpu_seconds_per_message=options.message))
    for said in machine.assumed(machine.threads, machine.ranks):
        print(f"assumed, not measured: {said}")
    config = configured(options)
    with GraphFile(options.graph) as file:
        experiment = Experiment.of(plan(config, file.meta, 1))
    rows = []
    for forecast in forecasts(config, tqdm(options.ranks, leave=False, disable=not sys.stderr.isatty())):
        rows.append(replayed(forecast, machine, experiment, options))
        print("  ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    print(tabulate(rows, "keys", floatfmt=".3g"))
    if options.out:
        write_csv(options.out, rows)
    if options.plot:
        draw(rows, options.plot)
    return 0


def replayed(forecast, machine, experiment, options):
    """The row of a number of ranks."""
    shares, network = forecast.shares, machine.network
    unseen = forecast.halo.keys() - {use.kind for used in forecast.uses.values() for use in used}
    if unseen:
        sys.exit(f"{', '.join(unseen)}: schedule {options.more} sends a part of the halo, which has no turns to replay")
    parts = seconds(forecast, machine).parts
    # Gathers are shared out by edges, the rest by nodes; calls are as many on each rank.
    edges, nodes = ((values / values.mean()) for values in (shares.edges, shares.nodes))
    work = parts["gather"] * edges + (parts["products"] + parts["others"]) * nodes + parts["serial"]
    streams = passages(forecast, experiment.row_bytes, experiment.limit)
    free = Links(latency=0.0, bandwidth=np.inf, ranks=machine.ranks, message=0.0, byte=0.0)
    # The machine's are of one that goes and one that comes, and of one thread.
    costs = network.cpu_seconds_per_message / 2, network.cpu_seconds_per_byte / 2, network.cpu_seconds_per_exchange
    latency = replace(free, latency=network.latency, message=costs[0], byte=costs[1], exchange=costs[2])
    links = replace(latency, bandwidth=network.bandwidth * network.bisection)
    noise, both = Troubles(options.noise), Troubles(options.noise, options.straggler)
    reduction = parts["reduction"]

    def epoch(links, reduction, troubles=Troubles()):
        seeds = range(SEEDS if troubles.noise else 1)
        return float(np.mean([epoch_seconds(streams, work, links, reduction, troubles, seed) for seed in seeds]))

    cases = [(free, 0.0), (latency, reduction), (links, reduction), (links, reduction, noise), (links, reduction, both)]
    times = [epoch(*case) for case in cases]
    row = {"ranks": shares.ranks, "turns": sum(map(len, streams))}
    row["messages of a rank"] = round(sum(float(each.messages.mean()) for each in forecast.halo.values()))
    row["halo / nodes"] = float(shares.inward.received.sum() / shares.nodes.sum())
    return row | {"one thread": parts["serial"]} | dict(zip(LOSSES, times, strict=True))


def configured(options):
    """The Config of the options behind --."""
    choices = registry_choices()
    given = ["train", "--graph", str(options.graph), "--auto-partition", *options.more]
    return make_config(given_options(build_parser(choices).parse_args(given)), choices)


def draw(rows, path):
    """The curves."""
    with drawing() as sheet:
        figure = sheet(figsize=(6.5, 3.6))
        axis = figure.subplots()
        ranks = [row["ranks"] for row in rows]
        for name in LOSSES:
            axis.plot(ranks, [1000 * row[name] for row in rows], marker="o", label=name)
        first = 1000 * rows[0]["imbalance"] * ranks[0]
        axis.plot(ranks, [first / each for each in ranks], color="grey", linestyle=":", label="ideal")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(ranks, [f"{each:,}" for each in ranks])
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.minorticks_off()
        axis.set_xlabel("MPI ranks")
        axis.set_ylabel("milliseconds of an epoch")
        legend(axis, wide=False)
        with replaced_by(path) as temporary:
            figure.savefig(temporary, dpi=150, format=Path(path).suffix[1:].lower())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True, metavar="FILE.h5")
    parser.add_argument("--machine", type=Path, required=True, metavar="FILE.toml")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], required=True)
    parser.add_argument(
        "--message", type=float, metavar="SECONDS", help="cpu_seconds_per_message in place of the machine file's"
    )
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--straggler", type=float, default=1.5)
    parser.add_argument("--out", metavar="FILE.csv")
    parser.add_argument("--plot", metavar="FILE.png")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of `hpcgnn train`, after --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
