#!/usr/bin/env python3
"""Seconds, processor time and memory of one epoch: hpcgnn and its peers, on the same graph file, in the same run.

Figures from different days or machines cannot be compared, and on shared machines not even different hours. So
all systems are measured in turn, round after round, each time in a fresh process, and the ratios are taken within a
round. All systems train the same network on all nodes (Adam, fp32, cross-entropy of the training nodes) with the same
number of threads in all. An epoch is forward, backward, reduction and step. Peers run in virtual environments that are
made on first use; one that cannot be installed, or fails, is listed with the reason.

OUT/compare.json has every raw sample, compare.md the tables, logs/ and runs/ the files of the processes.
"""

import dataclasses
import datetime
import json
import os
import signal
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.processes import Failed
from tqdm import tqdm

from comparison.cases import OURS, alternation, our_cases, peer_cases
from comparison.environments import PEERS, Absent, peer_python
from comparison.graphs import describe_graph, generated_graph, small_graph
from comparison.machine import describe_allocator, describe_machine, use_cores
from comparison.measure import Work, measure
from comparison.options import command_line, parse
from comparison.tables import render
from hpcgnn.errors import HpcgnnError
from hpcgnn.records import to_json, write_atomically


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options = parse(argv, __doc__)
    # Ended by a batch system or `timeout`, it unwinds, and so ends the measurement that is running.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if options.redraw:
            show(json.loads(options.redraw.read_text()), options.redraw.parent)
        else:
            show(compare(options, argv), options.out)
    except (HpcgnnError, OSError, json.JSONDecodeError) as error:
        print(f"compare: error: {error}", file=sys.stderr)
        return 2
    return 0


def compare(options, argv):
    """Measure everything, keeping OUT/compare.json complete after each measurement. Returns the document."""
    options.out.mkdir(parents=True, exist_ok=True)
    if any(options.out.iterdir()):
        raise HpcgnnError(f"{options.out} is not empty; expected a new folder for the results: choose another --out")
    graph = describe_graph(options.graph or generated_graph(options.graphs, options.ranks))
    cases, pythons, absent = [], {}, []
    if OURS in options.systems:
        cases = our_cases(options.ranks, options.threads, options.variants)
    for system in (name for name in options.systems if name != OURS):
        try:
            print(f"environment of {system} …", file=sys.stderr, flush=True)
            pythons[system] = peer_python(system, options.environments)
            cases += peer_cases(system, options.ranks if PEERS[system].parallel else None, options.threads)
        except Absent as reason:
            absent.append({"system": system, "reason": str(reason)})
            print(f"{system} is absent: {reason}", file=sys.stderr, flush=True)
    small = options.constant_nodes and small_graph(options.graphs, graph, options.constant_nodes, options.ranks)
    cores = use_cores(options.threads)
    if cores < options.threads:
        print(f"only {cores} cores for {options.threads} threads: times are not to be published", file=sys.stderr)
    document = {
        "version": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command_line(argv),
        "graph": graph,
        "machine": describe_machine(),
        "allocator": describe_allocator(),
        "settings": {
            name: getattr(options, name)
            for name in ("models", "threads", "rounds", "epochs", "discard", "reference", "layers", "hidden", "heads")
        }
        | {"head_width": options.head_width, "dropout": options.dropout, "lr": options.lr}
        | {"timeout_seconds": options.timeout, "constant_nodes": options.constant_nodes},
        "cases": [dataclasses.asdict(case) for case in cases],
        "absent": absent,
        "failures": [],
        "samples": [],
    }
    measure_all(document, cases, pythons, small, options)
    return document


def measure_all(document, cases, pythons, small, options):
    """All samples, small graph first. A case that failed on a model is not tried again on it."""
    turns = [(model, None, case) for model in options.models for case in cases] if small else []
    turns += alternation(options.models, cases, options.rounds)
    failed = set()
    for model, number, case in tqdm(turns, unit="run"):
        if (model, case.name) in failed:
            continue
        constant = number is None
        work = Work(
            str(small if constant else document["graph"]["path"]),
            *(options.layers, options.hidden, options.heads, options.head_width, options.dropout, options.lr),
        )
        counted = options.epochs if case.system == OURS else options.peer_epochs(case.system, model)
        epochs = 3 if constant else options.discard + counted
        label = "constant" if constant else f"round-{number + 1}"
        load = os.getloadavg()[0]
        try:
            sample = measure(case, model, work, epochs, label, options.out, pythons, options.timeout)
            where = {"model": model, "case": case.name, "round": number, "constant": constant}
            document["samples"].append({**where, "load_before": load, **sample})
        except Failed as reason:
            failed.add((model, case.name))
            document["failures"].append({"model": model, "case": case.name, "label": label, "reason": str(reason)})
        write_atomically(options.out / "compare.json", to_json(document, indent=1))


def show(document, out):
    """Print the tables, and write them to the folder of the numbers."""
    text = render(document)
    write_atomically(out / "compare.md", text)
    print(text)
    print(f"results in {out}/: compare.json, compare.md")


if __name__ == "__main__":
    sys.exit(main())
