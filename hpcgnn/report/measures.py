"""The numbers of one run that reports compare, each with its unit in its name: a flat dictionary per run.

Times are medians over epochs of the slowest rank's time. `seconds_*` are parts of an epoch in the mean over ranks, so
that they add up. `seconds_imbalance` is the slowest rank's time above that mean.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcgnn.report.remarks import halo_rounds, threads_per_core

if TYPE_CHECKING:
    from hpcgnn.report.read import Run


MIB = 2**20
ROWS = ("halo_forward", "halo_backward", "input")
SENT = (*ROWS, "allreduce", "average")  # the traffic of training; evaluation is counted apart
PARTS = {
    "forward": "forward, computing",
    "forward_wait": "forward, waiting for rows",
    "backward": "backward, computing",
    "backward_wait": "backward, waiting for rows",
    "reduction": "gradient reduction",
    "step": "optimizer step",
    "imbalance": "slowest rank above the mean",
}


def measure(run: "Run") -> dict[str, float]:
    """{name: number} of a Run; NaN where it was not measured."""
    summary, quality = run.summary, run.summary["partition"]
    seconds = summary["epoch_seconds"]
    return {
        "epoch_seconds": seconds["median"],
        "epoch_seconds_least": seconds["min"],
        "epoch_seconds_most": seconds["max"],
        **{f"seconds_{part}": value for part, value in _parts(run.records).items()},
        "growth_bytes": _number(summary["training_growth_bytes"]["max"]),
        "growth_bytes_mean": _number(summary["training_growth_bytes"]["mean"]),
        "peak_rss_bytes": _number(summary["peak_rss_bytes"]["max"]),
        **{f"bytes_{kind}": _bytes(run, run.records[-1], kind) for kind in (*SENT, "evaluation")},
        "bytes_epoch": sum(_bytes(run, run.records[-1], kind) for kind in SENT),
        "bytes_total": cumulative_bytes(run)[-1],
        "bytes_rows_total": cumulative_bytes(run, ROWS)[-1],
        "seconds_total": cumulative_seconds(run)[-1],
        "nodes_per_rank": statistics.fmean(rank["nodes"] for rank in run.ranks),
        "edges_per_rank": statistics.fmean(rank["edges"] for rank in run.ranks),
        "halo_rows_per_node": _number(quality.get("halo_rows_per_node")),
        **{f"imbalance_{what}": imbalance([rank[what] for rank in run.ranks]) for what in ("nodes", "edges")},
        "imbalance_halo": imbalance([rank["halo_rows"] for rank in run.ranks]),
        "imbalance_memory": imbalance([_number(rank["training_growth_bytes"]) for rank in run.ranks]),
        "final_loss": _number(summary["final_loss"]),
        "best_val": _number(summary["best_val"]),
        "test_at_best_val": _number(summary["test_at_best_val"]),
        "test_at_end": _number(run.records[-1].get("test")),
        "threads_per_core": threads_per_core(run),
        "halo_rounds": halo_rounds(run),
    }


def cumulative_bytes(run: "Run", kinds: Iterable[str] = SENT) -> list[float]:
    """Bytes that training has sent on all ranks by the end of each epoch, of some kinds of traffic."""
    total = 0
    result: list[float] = []
    for record in run.records:
        total += sum(_bytes(run, record, kind) for kind in kinds)
        result.append(total)
    return result


def cumulative_seconds(run: "Run") -> list[float]:
    """Seconds that training has taken on the slowest rank by the end of each epoch; evaluation is not counted."""
    return list(itertools.accumulate(record["seconds"]["epoch"]["max"] for record in run.records))


def imbalance(values: Sequence[float]) -> float:
    """Return the largest value over the mean; 1 is perfect, and NaN stands for no load at all."""
    mean = statistics.fmean(values)
    return max(values) / mean if mean > 0 else math.nan


def _parts(records: list[dict[str, Any]]) -> dict[str, float]:
    parts = [parts_of_epoch(record["seconds"]) for record in records]
    return {name: statistics.median(epoch[name] for epoch in parts) for name in PARTS}


def parts_of_epoch(seconds: dict[str, Any]) -> dict[str, float]:
    """{part: seconds} of one epoch, in the mean over ranks, from its record's `seconds`."""
    mean = {name: value["mean"] for name, value in seconds.items()}
    forward_wait = mean.get("halo_forward_wait", 0.0) + mean.get("input_wait", 0.0)
    backward_wait = mean.get("halo_backward_wait", 0.0)
    return {
        "forward": mean["forward"] - forward_wait,
        "forward_wait": forward_wait,
        "backward": mean["backward"] - backward_wait,
        "backward_wait": backward_wait,
        "reduction": mean["reduction"],
        "step": mean["step"],
        "imbalance": seconds["epoch"]["max"] - mean["epoch"],
    }


def _bytes(run: "Run", record: dict[str, Any], kind: str) -> int:
    """Return the bytes sent by all ranks. A single rank passes its reductions to MPI as well, but sends no bytes."""
    if run.summary["ranks"] == 1:
        return 0
    return record["bytes"].get(kind, {"sum": 0})["sum"]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def lower_is_better(summary: Mapping[str, Any]) -> bool:
    """Whether the metric of a run is an error; runs of earlier versions have none that is."""
    return summary.get("better", "higher") == "lower"


def named(summary: Mapping[str, Any]) -> str:
    """The name of the metric of a run, with its direction where it is an error."""
    return f"{summary['metric']}{' (lower is better)' * lower_is_better(summary)}"
