"""The result of a run: `summary.json`, `ranks.jsonl` with a record for each rank, the table on the screen and the
picture of the curves.
"""

import contextlib
import logging
import os
import platform
import socket
import statistics
import sys
from collections.abc import Iterator
from importlib import metadata
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from tabulate import tabulate

from hpcgnn import __version__, cores, kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.engine.bound import bound_of_epoch
from hpcgnn.engine.epochs import Progress
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.placement.clusters import imbalance
from hpcgnn.records import metrics_by_split, shown_number, spread, to_json
from hpcgnn.report.figures import draw_curves
from hpcgnn.report.read import GRADIENTS, RANKS, ROWS, named
from hpcgnn.terminal import tell

if TYPE_CHECKING:
    from hpcgnn.engine.rundir import RunDir
    from hpcgnn.engine.trainer import Trainer


log = logging.getLogger("hpcgnn")
_MOST_CLASSES = 20  # that a screen shows
PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "pymetis")


def partition_quality(local: LocalGraph, name: str, comm: Communicator) -> dict[str, Any]:
    """How good the map is: balance of nodes and edges, halo rows, cut edges, over all ranks; {} but on rank 0.
    Collective.
    """
    plan, own_edges, count = local.inward.plan, local.inward.own.num_edges, local.inward.num_edges
    ranks = comm.gather_object((local.num_owned, count, count - own_edges, plan.num_halo))
    if ranks is None:
        return {}
    nodes, edges, cut, halo = (list(column) for column in zip(*ranks, strict=True))
    return {
        "partition": name,
        "nodes": spread(nodes),
        "edges": spread(edges),
        "halo_rows": spread(halo),
        "halo_rows_total": sum(halo),
        "halo_rows_per_node": sum(halo) / local.num_nodes,
        "cut_edges": sum(cut),
        "imbalance_nodes": imbalance(nodes),
        "imbalance_edges": imbalance(edges),
    }


def versions() -> dict[str, str]:
    """Return {package: version} of the packages that the numbers depend on."""
    found = {"hpcgnn": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found


def gather_rank_records(trainer: "Trainer") -> list[dict[str, Any]] | None:
    """Return the measurements of every rank, in the order of ranks, on rank 0; None on the others. Collective."""
    comm, local = trainer.comm, trainer.local
    adjacencies = local.inward, local.outward, *local.task_edges.values()
    mine = {
        "rank": comm.rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
        "cores": sorted(cores.usable()),
        "nodes": local.num_owned,
        "edges": local.inward.num_edges,
        "halo_rows": local.inward.plan.num_halo,
        "rows_computed": trainer.views.rows_computed(len(trainer.model.convs)),
        "halo_rounds": max(len(each.plan.rounds) for each in adjacencies),
        "halo_buffer_bytes": trainer.buffers.nbytes,
        "halo_kept_bytes": trainer.schedule.halo.kept_bytes,
        "traffic": comm.ledger.total(),
        "bound": bound_of_epoch(trainer),
        **{name: value for plugin in trainer.plugins for name, value in plugin.record().items()},
        "seconds": trainer.clock.total,
    }
    return comm.gather_object(mine)


def summarise(
    trainer: "Trainer",
    progress: Progress,
    quality: dict[str, Any],
    ranks: list[dict[str, Any]],
    seconds_loading: float,
    run_dir: "RunDir",
    report: dict[str, Any],
) -> dict[str, Any]:
    """Write `summary.json`, then the records of the ranks, and return the summary. Rank 0.

    Args:
        trainer: the trainer.
        progress: position of the run.
        quality: the facts of `partition_quality`.
        ranks: the records of `gather_rank_records`.
        seconds_loading: seconds from the start to the first epoch.
        run_dir: the run directory.
        report: the evaluator's report of the best epoch, or {}.
    """
    comm, config, evaluator = trainer.comm, trainer.plan.config, trainer.evaluator
    records, best = run_dir.records(), progress.best or {}
    told, took = best.get("epoch", progress.epoch), [r["seconds"]["epoch"]["max"] for r in records]
    summary = {
        "ranks": comm.size,
        "threads_per_rank": config.run.threads,
        "schedule": config.schedule.schedule,
        "model": config.model.model,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "epochs": progress.epoch,
        "final_loss": records[-1]["loss"],
        "task": evaluator.task.name,
        "metric": evaluator.name,
        "better": evaluator.metric.direction,
        "best_val": best.get("val"),
        "best_epoch": best.get("epoch"),
        "test_at_best_val": best.get("test"),
        "test_at_end": records[-1].get("test"),
        "split_nodes": evaluator.counts,
        "judged": evaluator.task.judged,
        **next((metrics_by_split(r) for r in records if r["epoch"] == told), {}),
        "epoch_seconds": {"median": statistics.median(took), "min": min(took), "max": max(took)},
        "bound": max((r["bound"] for r in ranks if r["bound"]), key=itemgetter("seconds"), default=None),
        **{name: value for plugin in trainer.plugins for name, value in plugin.summary(ranks).items()},
        "halo_bytes_per_epoch": _traffic(records[-1:], *ROWS),
        "allreduce_bytes_per_epoch": _traffic(records[-1:], *GRADIENTS),
        "bytes_total": {kind: _traffic(records, kind) for kind in sorted({k for r in records for k in r["bytes"]})},
        "seconds_loading": seconds_loading,
        "halo_buffer_bytes": max(r["halo_buffer_bytes"] for r in ranks),
        "halo_kept_bytes": max(r["halo_kept_bytes"] for r in ranks),
        "partition": quality,
        "graph": str(config.data.graph),
        "graph_uuid": progress.identity["graph"],
        "seed": config.run.seed,
        "versions": versions(),
        "kernels": kernels.describe(),
        "hosts": sorted({r["host"] for r in ranks}),
        "command": sys.argv,
        "config": config.to_dict(),
        **{name: value for name, value in report.items() if name not in SPLITS},
    }
    with comm.heartbeat.storing():
        run_dir.write("summary.json", to_json(summary, indent=1))
        run_dir.write(RANKS, "".join(to_json(record) + "\n" for record in ranks))  # one file of however many ranks
    return summary


def _traffic(records: list[dict[str, Any]], *kinds: str) -> int:
    """Bytes sent by all ranks in these epochs for these kinds of traffic."""
    return sum(record["bytes"].get(kind, {"sum": 0})["sum"] for record in records for kind in kinds)


def show_result(summary: dict[str, Any], run_dir: "RunDir") -> None:
    """Print the result as a table and draw the curves. Rank 0.

    An error here becomes a line in the log, for the run is done and its files are written.
    """
    with _without_harm("table of the result"):
        tell(_result_table(summary))
        show_classes(summary)
    picture = None
    with _without_harm("curves.png"):
        try:
            picture = draw_curves(run_dir.path)
        except ImportError:
            log.warning("no curves.png: matplotlib is not installed (pip install 'hpcgnn[plot]')")
    tell(f"results in {run_dir.path}/: summary.json, metrics.jsonl" + (f", {picture.name}" if picture else ""))


@contextlib.contextmanager
def _without_harm(what: str) -> Iterator[None]:
    """Turn an error of the body into a warning."""
    try:
        yield
    except Exception as error:
        log.warning("no %s: %s: %s", what, type(error).__name__, " ".join(str(error).split()))


def rows_of_metrics(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a table for people with all metrics of each split, of a summary or an evaluation that has them."""
    return [
        (f"{split}, all metrics", ", ".join(f"{name} {shown_number(value)}" for name, value in values.items()))
        for table in metrics_by_split(record).values()
        for split, values in table.items()
    ]


def show_classes(record: dict[str, Any]) -> None:
    """Print the table by class of an evaluation or a summary that has one of few rows: of the test nodes, or of those
    that there are.
    """
    tables = record.get("classes") or {}
    split = next((each for each in ("test", "val", "train") if any(row["support"] for row in tables.get(each, ()))), "")
    if split and len(tables[split]) <= _MOST_CLASSES:
        shown = [
            {name: shown_number(value) if isinstance(value, float) else value for name, value in row.items()}
            for row in tables[split]
        ]
        table = tabulate(shown, "keys", "rounded_outline", disable_numparse=True, stralign="right")
        tell(f"{split} nodes by class\n{table}")


def _result_table(summary: dict[str, Any]) -> str:
    """The result for people."""
    metric = named(summary)
    learned = f" and {summary['learned_features']:,} learned features" if summary.get("learned_features") else ""
    rows = [
        ("model", f"{summary['model']}, {summary['parameters']:,} parameters{learned}"),
        ("ranks × threads", f"{summary['ranks']} × {summary['threads_per_rank']}"),
        ("epochs", summary["epochs"]),
        ("final loss", f"{summary['final_loss']:.4f}"),
    ]
    if summary["best_val"] is not None:
        rows += [
            (f"best validation {metric}", f"{summary['best_val']:.4f} (epoch {summary['best_epoch']})"),
            (f"test {metric} there", shown_number(summary["test_at_best_val"])),
        ]
    elif summary["config"]["run"]["eval_every"]:
        absent = f"the graph has no validation {summary.get('judged', 'nodes')}"
        why = "not defined in any epoch" if summary["split_nodes"]["val"] else absent
        rows += [
            (f"best validation {metric}", f"– ({why})"),
            (f"test {metric} after the last epoch", shown_number(summary["test_at_end"])),
        ]
    seconds, rows_sent = summary["epoch_seconds"], summary["halo_bytes_per_epoch"] / 2**20
    reduced = summary["allreduce_bytes_per_epoch"] / 2**20
    shared = ", of one node in shared memory" * (summary["config"]["schedule"]["intra_node"] == "shared")
    growth, peak, libraries, code = (
        {which: value / 2**20 for which, value in summary[name].items()}
        for name in ("training_growth_bytes", "peak_rss_bytes", "libraries_rss_bytes", "libraries_code_bytes")
    )
    rows += [
        *rows_of_metrics(summary),
        ("seconds per epoch", f"{seconds['median']:.4f} ({seconds['min']:.4f} to {seconds['max']:.4f})"),
        ("memory of training per rank", f"{growth['max']:.1f} MiB at most, {growth['mean']:.1f} MiB in the mean"),
        ("peak resident memory", f"{peak['max']:.0f} MiB at most, {peak['sum']:.0f} MiB over all ranks"),
        (
            "  libraries in it, per rank",
            f"{libraries['mean']:.0f} MiB; {code['mean']:.0f} MiB of them are shared by the ranks of a node",
        ),
        ("halo", f"{summary['partition']['halo_rows_total']:,} rows in the map{shared}"),
        ("sent per epoch, all ranks", f"{rows_sent:.4g} MiB of rows, {reduced:.4g} MiB of gradients"),
    ]
    return tabulate(rows, tablefmt="rounded_outline", disable_numparse=True)
