"""`hpcgnn estimate`: memory, messages and time of a job on any number of ranks."""

import argparse
import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hpcgnn.app.choosing_maps import find_map
from hpcgnn.app.shortage import advice
from hpcgnn.config import Choices, Config
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.alternatives import advice_on, alternatives, alternatives_table
from hpcgnn.estimate.arguments import CUT_SHARE, TRAIN_SHARE
from hpcgnn.estimate.counts.sources import AssumedGraph, CountedGraph, Source
from hpcgnn.estimate.forecast import Forecast
from hpcgnn.estimate.machine.machine import Machine, read_machine
from hpcgnn.estimate.machine.measure import reference
from hpcgnn.estimate.results import Place, as_values, draw, size_in_words, table
from hpcgnn.estimate.seconds import seconds
from hpcgnn.estimate.trial.offloading import within, within_table
from hpcgnn.graphfile.storage import GraphFile, replacing
from hpcgnn.listing import in_turn
from hpcgnn.memory.resident import common_bytes, resident_bytes
from hpcgnn.options.memory_size import said_memory
from hpcgnn.output_files import check_outputs
from hpcgnn.plan.run_plan import check_memory
from hpcgnn.tasks.registry import task_traits
from hpcgnn.terminal import tell

# Bytes that loading and starting MPI adds to a process with torch, if no machine file has the number.
_MPI = 40 << 20
PICTURES = ".png", ".pdf", ".svg"


def estimate(config: Config, arguments: argparse.Namespace, choices: Choices) -> int:
    """Print the table of an estimate, write the requested files, and recommend a number of ranks."""
    inputs = [config.data.graph, config.model.plugin, arguments.config, arguments.machine]
    check_outputs({"--json": arguments.json, "--plot": arguments.plot}, inputs, arguments.force)
    if arguments.plot and Path(arguments.plot).suffix.lower() not in PICTURES:
        raise ConfigError(f"cannot draw {arguments.plot}: expected a name that ends in {', '.join(PICTURES)}")
    if arguments.plot and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'hpcgnn[plot]'")
    machine = None if arguments.machine is None else _machine(arguments, config)
    if machine is not None:
        reference(choices)  # its libraries are in the machine file; the model's further libraries are measured after it
    memory = said_memory(config.run.memory)
    if memory is not None:
        check_memory(config)
    config = config.replace(auto_partition=True)  # a job is estimated before its map is stored
    rows, place = [], place_of(machine, arguments.ranks_per_node)
    with _source(config, arguments, place.ranks_per_node) as source:
        threaded = config if machine is None else config.replace(threads=machine.threads)
        for ranks in _shown(arguments.ranks):
            forecast = source.forecast(threaded, ranks)
            timed = None if machine is None else seconds(forecast, machine)
            rows.append(as_values(forecast, timed, machine, place, config))
            if memory is not None:
                rows[-1]["within"] = within(forecast, place, machine, config, memory)
        tell(table(rows), needed=True)
        if memory is not None:
            tell(f"\nwithin --memory {config.run.memory} of a node:\n{within_table(rows)}", needed=True)
        for line in _remarks(rows, config, machine, place, arguments):
            tell(line, needed=True)
        if arguments.alternatives:
            row = _to_vary(rows)
            others = row["alternatives"] = alternatives(source, config, row, machine, place, choices)
            tell(f"\nother options on {row['ranks']} ranks:\n{alternatives_table(others)}", needed=True)
            for line in advice_on(others):
                tell(line, needed=True)
    if arguments.json:
        write(arguments.json, json.dumps(rows, indent=1) + "\n")
    if arguments.plot:
        draw(rows, arguments.plot)
    return 0


def _assumed(arguments: argparse.Namespace) -> tuple[float, float]:
    """Return (--cut-share, --train-share), or their defaults."""
    cut, train = arguments.cut_share, arguments.train_share
    return CUT_SHARE if cut is None else cut, TRAIN_SHARE if train is None else train


def forecasts(config: Config, rank_counts: Iterable[int]) -> Iterator[Forecast]:
    """A Forecast of the configuration's graph for each number of ranks."""
    with GraphFile(config.data.graph) as file:
        source = CountedGraph(file, task_traits(config.task.task).labels)
        for ranks in _shown(rank_counts):
            yield source.forecast(config, ranks)


@contextlib.contextmanager
def _source(config: Config, arguments: argparse.Namespace, per_node: int | None) -> Iterator[Source]:
    """The graph that the options name. per_node: ranks of a node, where that is known."""
    if arguments.stats:
        yield AssumedGraph(arguments.stats, *_assumed(arguments))
        return
    if arguments.cut_share is not None or arguments.train_share is not None:
        raise ConfigError(
            "--cut-share and --train-share belong to --stats: of a graph file both are counted; drop them"
        )
    with GraphFile(config.data.graph) as file:
        yield CountedGraph(file, task_traits(config.task.task).labels, per_node)


def _shown(rank_counts: Iterable[int]) -> Iterable[int]:
    return tqdm(rank_counts, unit="estimate", leave=False, disable=not sys.stderr.isatty())


def _machine(arguments: argparse.Namespace, config: Config) -> Machine:
    machine = read_machine(arguments.machine)
    ranks, threads = arguments.ranks_per_node or machine.ranks, config.run.threads or machine.threads
    if arguments.ranks_per_node and not config.run.threads:
        threads = max(1, machine.cores // ranks)
    return replace(machine, ranks=ranks, threads=threads)


def place_of(machine: Machine | None, ranks_per_node: int | None = None) -> Place:
    """Return the Place of a job. Call it before any trial: without a machine, the libraries are this process's.

    Args:
        machine: the machine, or None.
        ranks_per_node: the number if it is known without a machine.
    """
    if machine is None:
        return Place(resident_bytes() + _MPI, common_bytes(), ranks_per_node, None)
    return Place(machine.libraries, machine.shared, machine.ranks, machine.memory)


def _to_vary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The number of ranks that other options are tried on: of the fewest node-hours that fit, else the largest."""
    fitting = [row for row in rows if row["fits"] and row["epoch_seconds"]]
    return min(fitting, key=lambda row: row["node_hours"]) if fitting else max(rows, key=lambda row: row["ranks"])


def _remarks(
    rows: list[dict[str, Any]], config: Config, machine: Machine | None, place: Place, arguments: argparse.Namespace
) -> Iterator[str]:
    """Yield remarks that explain the table."""
    if arguments.stats:
        cut, train = _assumed(arguments)
        yield f"assumed: --cut-share {cut:g} of the edges between ranks, --train-share {train:g}, all ranks alike"
    else:
        with GraphFile(config.data.graph) as file:
            made = [row["ranks"] for row in rows if find_map(file, config, row["ranks"])[1] is None]
        if made:
            yield f"no map is stored for {in_turn(made)} ranks: counted with the one that --auto-partition makes"
    if said_memory(config.run.memory) is not None:
        yield "the upper table is without --memory; the lower one takes all ranks for as large as the largest"
        if machine is not None and machine.scratch is None:
            yield f"no seconds of the disk: {arguments.machine} has no [scratch] with read and write, bytes per second"
    yield from _of_nodes(rows, config, place)
    if not all(row["bytes_counted"] for row in rows):
        yield "bytes are not counted from the graph, but taken from a small copy"
    missing = sorted({name for row in rows for name in row.get("not_measured", ())})
    if missing:
        yield f"without a rate in {arguments.machine}: {', '.join(missing)}; their time is left out"
    if machine is None or place.memory is None:
        yield "no seconds and no recommendation: --machine FILE says what the nodes are like"
        return
    for said in dict.fromkeys(said for row in rows for said in row["assumed"]):
        yield f"assumed, not measured: {said}; measure {arguments.machine} with `hpcgnn bench machine`"
    fitting = [row for row in rows if row["fits"]]
    if not fitting:
        yield f"none fits nodes of {place.memory / 2**30:.0f} GiB with {machine.ranks} ranks on each; {advice(config)}"
        return
    if any(row["nodes"] > 1 for row in rows):
        yield f"the network between nodes is as {arguments.machine} has it; `bench machine` does not measure it"
    first = min(fitting, key=lambda row: row["ranks"])
    cheapest = min(fitting, key=lambda row: row["node_hours"])
    fastest = min(fitting, key=lambda row: row["epoch_seconds"]["median"])
    yield (
        f"fewest ranks that fit: {first['ranks']} on {first['nodes']} nodes of {machine.ranks} ranks × "
        f"{machine.threads} threads, {first['node_bytes'] / 2**30:.1f} of {place.memory / 2**30:.1f} GiB"
    )
    yield (
        f"fewest node-hours: {cheapest['ranks']} ranks, {cheapest['node_hours']:.3g} for {cheapest['epochs']} epochs; "
        f"shortest epoch: {fastest['ranks']} ranks, {fastest['epoch_seconds']['median']:.3g} s"
    )


def _of_nodes(rows: list[dict[str, Any]], config: Config, place: Place) -> Iterator[str]:
    """What nodes send each other."""
    counted = [row for row in rows if row["sent_by_nodes"] and row["nodes"] > 1]
    in_place = [row["ranks"] for row in counted if row["intra_node"] == "shared"]
    if config.schedule.intra_node == "shared" and not counted:
        yield (
            "as --intra-node messages: ranks of a node send each other their rows in these figures; of a file and a "
            "model whose rows can be read in place, --ranks-per-node N counts what nodes send"
        )
    if in_place:
        yield f"--intra-node shared on {in_turn(in_place)} ranks, {place.ranks_per_node} on a node: only nodes send"
    for row in counted:
        sent = row["sent_by_nodes"]
        yield (
            f"{row['ranks']} ranks: a node sends others {size_in_words(sent['bytes']['mean'])} an epoch in "
            f"{sent['messages']['mean']:,.0f} messages, at most {size_in_words(sent['bytes']['max'])} in "
            f"{sent['messages']['max']:,}"
        )


def write(path: str, text: str) -> None:
    with replacing(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")
