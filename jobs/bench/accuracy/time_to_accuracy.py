#!/usr/bin/env python3
"""Seconds and epochs to an accuracy: hpcgnn's schedules against PyG and DGL, full-batch and with sampled neighbours.

    python jobs/bench/accuracy/time_to_accuracy.py cora.npz planted.h5 --ours sar "sar --precision bf16"
    python jobs/bench/accuracy/time_to_accuracy.py debian.npz --peers pyg "pyg-sampled --fanout 5" --ours

archives.py describes the graphs. An entry of --ours is a schedule with options of `hpcgnn train`; one of --peers is
pyg, pyg-sampled, dgl or dgl-sampled with options of peers/train.py. All of them train with Adam, every rate of --rates
and the seeds 0, 1, …, in turns, seed by seed. A target is a share of the best validation accuracy in the run: of a
system's and rate's mean over seeds, the largest.

The clocks (wall, and processor time of all ranks) run in training alone. Evaluation is exact, after every --every-th
epoch, and outside of them, as are loading, hpcgnn's clusters and the peers' formats. A target's row has the rate with
which most seeds reach it, and of these the one with the least processor time: medians, and least to most.

With --at, a second table has the test accuracy at the best validation of the first N epochs, in %, and the
first loss. Each is the mean and standard deviation over seeds, for each rate.

OUT/time_to_accuracy.csv has a row for each rate, OUT/GRAPH-MODEL.svg the curves, OUT/GRAPH/ the files of the runs. Runs
that are there are not repeated. PyG's sampler needs torch-sparse or pyg-lib in its environment; a system that cannot
run is listed with the reason. The exit code is 1 if no system could.
"""

import argparse
import json
import shlex
import shutil
import statistics
import sys
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[1:1] = [str(ROOT / "jobs" / "bench"), str(ROOT)]  # shared parts, this checkout

from archives import add_shape, import_graph, read_graph
from comparison.environments import Absent, peer_python
from shared.launched import parallel
from shared.processes import Failed, clean_environment, run
from shared.tables import write_csv
from tabulate import tabulate

HERE = Path(__file__).resolve().parent
PEERS = ("pyg", "pyg-sampled", "dgl", "dgl-sampled")


@dataclass(frozen=True)
class Curve:
    """A run. epochs: those with an evaluation; seconds, processor: of training until then; val, test: accuracies.
    first_loss: of the first epoch.
    """

    epochs: list
    seconds: list
    processor: list
    val: list
    test: list
    first_loss: float

    def reaches(self, target):
        """(epoch, wall seconds, processor seconds) of the first accuracy of at least `target`, or None."""
        for place, accuracy in enumerate(self.val):
            if accuracy >= target:
                return self.epochs[place], self.seconds[place], self.processor[place]
        return None

    def test_at_best(self, epochs):
        """Test accuracy at the best validation of the first `epochs` epochs."""
        first = [pair for epoch, *pair in zip(self.epochs, self.val, self.test, strict=True) if epoch <= epochs]
        return max(first, key=lambda pair: pair[0])[1]


def curve_of(records):
    """The Curve of [{epoch, loss, seconds, processor, and where evaluated val, test}]."""
    spent = [list(accumulate(record[name] for record in records)) for name in ("seconds", "processor")]
    rows = zip(records, *spent, strict=True)
    known = [(record["epoch"], *spent, record["val"], record["test"]) for record, *spent in rows if "val" in record]
    return Curve(*map(list, zip(*known, strict=True)), records[0]["loss"])


def our_records(place, rate):
    """The records of a run directory, in the form of the peers'."""
    found = []
    for line in Path(f"{place}-{rate}", "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        scores = {name: record[name] for name in ("val", "test") if record.get(name) is not None}
        processor = sum(record["cpu"][part]["sum"] for part in ("user_seconds", "system_seconds"))
        seconds = record["seconds"]["epoch"]["max"]
        own = {"epoch": record["epoch"], "loss": record["loss"], "seconds": seconds, "processor": processor}
        found.append(own | scores)
    return found


class Graph:
    """A graph as all systems read it, below `folder`."""

    def __init__(self, path, options):
        self.folder = options.out / path.stem
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "graph.h5").exists():
            import_graph(read_graph(path, options.columns), self.folder, options.ranks, options.clusters)
        self.name = path.stem

    def train(self, entry, ours, seed, options, python):
        """{rate: Curve} of all rates, one after another in one process. entry: of --ours or --peers. Raises Failed."""
        words = shlex.split(entry)
        label = "-".join(word.strip("-") for word in words).replace("/", "-")
        place, rates = str(self.folder / f"{options.model}-{label}-{seed}"), [f"{rate:g}" for rate in options.rates]
        given = {name: getattr(options, name) for name in ("model", "layers", "hidden", "dropout", "epochs", "threads")}
        given["seed"] = seed
        if options.model == "gat" or not ours:
            given["heads"] = options.heads
        result, log = Path(f"{place}.json"), f"{place}.log"
        if ours:
            given |= {"graph": self.folder / "graph.h5", "eval-every": options.every, "schedule": words[0]}
            command = parallel(options.ranks, HERE / "peers" / "ours.py", place, ",".join(rates))
        else:
            given |= {"graph": self.folder / "graph.npz", "every": options.every, "rates": ",".join(rates)}
            given |= {"result": result}
            command = [python, HERE / "peers" / "train.py", words[0]]
        command += [part for name, value in given.items() for part in (f"--{name}", value)] + words[1:]
        command = list(map(str, command))
        if not result.exists() or json.loads(result.read_text()).get("command") != command:
            for rate in rates:
                shutil.rmtree(f"{place}-{rate}", ignore_errors=True)  # of an earlier command
            run(command, log, options.timeout, clean_environment(options.threads, PYTHONPATH=str(ROOT)))
            done = {rate: our_records(place, rate) for rate in rates} if ours else json.loads(result.read_text())
            result.write_text(json.dumps({"command": command, "records": done}))
        return {float(rate): curve_of(of) for rate, of in json.loads(result.read_text())["records"].items()}


def pythons_of(options):
    """{peer: its interpreter, or the reason why it has none}."""
    found = {}
    for name in {entry.split()[0].partition("-")[0] for entry in options.peers}:
        try:
            found[name] = peer_python(name, options.environments)
        except Absent as reason:
            found[name] = Failed(str(reason))
    return found


def run_all(graph, options, pythons):
    """({(system, rate): [Curve]}, {system: why it is absent}): all runs of a graph, system after system for each."""
    entries = [(entry, True) for entry in options.ours] + [(entry, False) for entry in options.peers]
    curves, absent = {}, {}
    for seed in range(options.seeds):
        for entry, ours in entries:
            name = f"hpcgnn {entry}" if ours else entry
            python = None if ours else pythons[entry.split()[0].partition("-")[0]]
            if name in absent:
                continue
            try:
                if isinstance(python, Failed):
                    raise python
                for rate, curve in graph.train(entry, ours, seed, options, python).items():
                    curves.setdefault((name, rate), []).append(curve)
                    print(graph.name, name, seed, rate, f"{max(curve.val):.4f}", file=sys.stderr, flush=True)
            except Failed as reason:
                absent[name] = str(reason)
                print(f"{name} is absent: {reason}", file=sys.stderr, flush=True)
    return {key: found for key, found in curves.items() if key[0] not in absent}, absent


def best(curves):
    """The mean over seeds of a Curve's best validation accuracy."""
    return statistics.mean(max(curve.val) for curve in curves)


def rows_of(graph, curves, options):
    """[{column: value}] of each system, rate and target."""
    most, rows = max(map(best, curves.values())), []
    for (system, rate), found in curves.items():
        tests = [max(zip(curve.val, curve.test, strict=True), key=lambda both: both[0])[1] for curve in found]
        for share in options.targets:
            reached = list(filter(None, (curve.reaches(share / 100 * most) for curve in found)))
            row = {"graph": graph.name, "model": options.model, "system": system, "rate": rate}
            row |= {"best_val": best(found), "test_there": statistics.mean(tests), "target": share / 100 * most}
            row |= {"share": share, "seeds": len(found), "reached": len(reached)}
            for place, name in enumerate(("epochs", "seconds", "processor_seconds")):
                values = sorted(each[place] for each in reached) or [float("nan")]
                row |= {name: statistics.median(values), f"{name}_least": values[0], f"{name}_most": values[-1]}
            rows.append(row)
    return rows


def chosen(rows):
    """The row of the best rate of each system and target, in the order of the systems."""
    found = {}
    for row in rows:
        key = row["system"], row["share"]
        if key not in found or _order(row) < _order(found[key]):
            found[key] = row
    return list(found.values())


def _order(row):
    return -row["reached"], row["processor_seconds"] if row["reached"] else 0, -row["best_val"]


def table(rows, options):
    """Markdown: a line for each graph, model and system, with a column for each target."""
    systems, lines = {}, []
    for row in chosen(rows):
        systems.setdefault(row["system"], []).append(row)
    for system, found in systems.items():
        top = max((row for row in rows if row["system"] == system), key=lambda row: row["best_val"])
        line = [top["graph"], top["model"], system, f"{100 * top['best_val']:.1f} ({top['rate']:g})"]
        lines.append(line + [part for row in found for part in _cells(row)])
    titles = [f"{part} to {share:g} %" for share in options.targets for part in ("epochs", "processor s", "wall s")]
    return tabulate(lines, ["graph", "model", "system", "best val (rate)", *titles], "pipe", disable_numparse=True)


def table_at(graph, curves, options):
    """Markdown: a line for each system and rate, with the test accuracy after --at epochs."""
    lines = []
    for (system, rate), found in curves.items():
        loss = statistics.mean(curve.first_loss for curve in found)
        line = [graph.name, options.model, f"{system} ({rate:g})", f"{loss:.2f}"]
        for epochs in options.at:
            tests = [100 * curve.test_at_best(epochs) for curve in found]
            line.append(f"{statistics.mean(tests):.1f} ± {statistics.stdev(tests) if len(tests) > 1 else 0:.1f}")
        lines.append(line)
    titles = ["graph", "model", "system (rate)", "first loss", *(f"{epochs} epochs" for epochs in options.at)]
    return tabulate(lines, titles, "pipe", disable_numparse=True)


def _cells(row):
    """[epochs (rate), processor seconds with their spread, wall seconds] of a target."""
    if not row["reached"]:
        return ["never", "", ""]
    some = "" if row["reached"] == row["seeds"] else f", {row['reached']} of {row['seeds']} seeds"
    processor = [row[f"processor_seconds{end}"] for end in ("", "_least", "_most")]
    spread = f"{processor[0]:.3g}" + f" ({processor[1]:.3g} to {processor[2]:.3g})" * (row["reached"] > 1)
    return [f"{row['epochs']:g} ({row['rate']:g}{some})", spread, f"{row['seconds']:.3g}"]


def draw(graph, curves, rows, options):
    """The best validation accuracy so far over processor time, of each system with its rate of the highest target."""
    from hpcgnn.report.style import HEIGHT, WIDTH, drawing, from_zero, legend, line_styles, log_axis

    rates = {row["system"]: row["rate"] for row in chosen(rows) if row["share"] == options.targets[-1]}
    with drawing() as sheet:
        figure = sheet(figsize=(WIDTH, HEIGHT))
        axis = figure.subplots()
        for system, style in line_styles(rates).items():
            found = curves[system, rates[system]]
            spent = [curve.processor for curve in found]
            so_far = [list(accumulate(curve.val, max)) for curve in found]
            columns = [
                [statistics.median(each) for each in zip(*of_seeds, strict=True)] for of_seeds in (spent, so_far)
            ]
            axis.plot(*columns, label=f"{system}, {rates[system]:g}", **{**style, "marker": None})
        log_axis(axis.xaxis)
        axis.set(xlabel="processor time of training (s)", ylabel="best validation accuracy so far", title=graph.name)
        from_zero(axis)
        legend(axis)
        figure.savefig(options.out / f"{graph.name}-{options.model}.svg", metadata={"Date": None})


def parse():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path, metavar="GRAPH", help=".npz or .h5")
    parser.add_argument("--ours", nargs="*", default=["sar"], metavar="SCHEDULE", help="default: sar")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), help=f"default: {' '.join(PEERS)}")
    parser.add_argument("--model", choices=("gcn", "sage", "gat"), default="sage", help="default: sage")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.01, 0.03], help="default: 0.003 0.01 0.03")
    parser.add_argument("--targets", type=float, nargs="+", default=[95, 98, 99], help="percent (default: 95 98 99)")
    parser.add_argument("--at", type=int, nargs="+", default=[], metavar="EPOCHS", help="numbers of the second table")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--epochs", type=int, default=200, help="default: 200; an entry may have its own")
    parser.add_argument("--every", type=int, default=1, help="epochs between evaluations (default: 1)")
    parser.add_argument("--ranks", type=int, default=1, help="of hpcgnn (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="of a rank, and of a peer (default: 1)")
    parser.add_argument("--clusters", type=int, metavar="K", help="of hpcgnn's graph file (default: partition's)")
    add_shape(parser)
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of a run (default: 3600)")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "bench-envs", help="of the peers")
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-accuracy"), help="default: %(default)s")
    options = parser.parse_args()
    for entry in options.peers:
        if not entry.split() or entry.split()[0] not in PEERS:
            parser.error(f"--peers {entry!r}: expected one of {', '.join(PEERS)}, and options")
    return options


def main():
    """Run everything, and print the table after each graph."""
    options, every = parse(), []
    pythons = pythons_of(options)
    for path in options.graphs:
        graph = Graph(path, options)
        curves, absent = run_all(graph, options, pythons)
        if curves:
            rows = rows_of(graph, curves, options)
            draw(graph, curves, rows, options)
            write_csv(options.out / "time_to_accuracy.csv", every := every + rows)
            print(table(rows, options), flush=True)
            if options.at:
                print("\n" + table_at(graph, curves, options), flush=True)
        for system, reason in absent.items():
            print(f"\n{graph.name}: {system} is absent: {reason}")
    return 0 if every else 1


if __name__ == "__main__":
    sys.exit(main())
