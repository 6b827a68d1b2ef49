"""One measurement of one case: the command, and the results of its process, in one form for all systems.

A sample is {"epochs": [{loss, seconds, user_seconds, system_seconds, minor_faults}], "growth_bytes": {max, sum}, …};
Seconds are the slowest rank's. Processor time and faults are the sum over ranks. startup_seconds, of ours: reading the
graph and planning.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from shared.launched import parallel
from shared.processes import Failed, clean_environment, run

from comparison.cases import OURS
from comparison.environments import PEER_CODE, PEERS, ROOT

COSTS = ("user_seconds", "system_seconds", "minor_faults")


@dataclass(frozen=True)
class Work:
    """The model that every system trains. hidden: of sage and gcn; width: of one head of gat."""

    graph: str
    layers: int
    hidden: int
    heads: int
    width: int
    dropout: float
    lr: float

    def hidden_of(self, model):
        return self.width if model == "gat" else self.hidden


def measure(case, model, work, epochs, label, out, pythons, limit_seconds):
    """Run one measurement and return its sample. label: names its files below `out`. Raises Failed."""
    place = re.sub(r"[^\w.-]+", "-", f"{model}-{case.name}-{label}").strip("-")
    log = Path(out) / "logs" / f"{place}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = clean_environment(case.threads, PYTHONPATH=str(ROOT))
    if case.system == OURS:
        run_dir = Path(out) / "runs" / place
        command = our_command(case, model, work, epochs, run_dir)
        run(command, log, limit_seconds, environment)
        sample = read_our_run(run_dir)
    else:
        result = log.with_suffix(".json")
        command = peer_command(case, model, work, epochs, pythons[case.system], result)
        run(command, log, limit_seconds, environment)
        sample = read_peer_result(result)
        if PEERS[case.system].parallel and sample["processes"] != case.ranks:
            raise Failed(f"{sample['processes']} ranks left a result, expected {case.ranks}: its launcher is unknown")
    if not sample["epochs"]:
        raise Failed("it left no epochs")
    return {**sample, "command": command}


def options_of(case, model, work, epochs):
    """[option, value, …] that hpcgnn and the peers share."""
    values = {"graph": work.graph, "model": model, "layers": work.layers, "hidden": work.hidden_of(model)}
    values |= {"heads": work.heads, "dropout": work.dropout, "lr": work.lr, "epochs": epochs, "threads": case.threads}
    return [part for key, value in values.items() for part in (f"--{key}", value)]


def our_command(case, model, work, epochs, run_dir):
    options = [*options_of(case, model, work, epochs), "--eval-every", 0, "--run-dir", run_dir, *case.options]
    return [*map(str, parallel(case.ranks, "-m", "hpcgnn", "train", *options))]


def read_our_run(run_dir):
    """The sample of a run directory of `hpcgnn train`."""
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    growth = summary["training_growth_bytes"]
    return {
        "epochs": [
            {
                "loss": record["loss"],
                "seconds": record["seconds"]["epoch"]["max"],
                **{name: record["cpu"][name]["sum"] for name in COSTS},
            }
            for record in map(json.loads, lines)
        ],
        "growth_bytes": None if growth["max"] is None else {"max": growth["max"], "sum": growth["sum"]},
        "startup_seconds": summary["seconds_loading"],
        "format": f"kernels {summary['kernels'].get('vector_path', '')}".strip(),
        "versions": summary["versions"],
    }


def peer_command(case, model, work, epochs, python, result):
    options = ["--peer", PEERS[case.system].module, *options_of(case, model, work, epochs), "--result", result]
    launcher = parallel(case.ranks)[:3] if PEERS[case.system].parallel else []
    return [*map(str, [*launcher, python, PEER_CODE / "worker.py", *options])]


def read_peer_result(path):
    """The sample of the ranks of a peer, each with a file of its own."""
    ranks = [json.loads(file.read_text()) for file in sorted(path.parent.glob(f"{path.name}.*"))]
    epochs = [
        {
            "loss": epoch[0]["loss"],
            "seconds": max(rank["seconds"] for rank in epoch),
            **{name: sum(rank[name] for rank in epoch) for name in COSTS},
        }
        for epoch in zip(*(rank["epochs"] for rank in ranks), strict=True)
    ]
    growth = [rank["growth_bytes"] for rank in ranks]
    both = None if None in growth else {"max": max(growth), "sum": sum(growth)}
    return {**ranks[0], "processes": len(ranks), "epochs": epochs, "growth_bytes": both}
