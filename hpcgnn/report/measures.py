"""The numbers of one run that a report compares, each with its unit in its name: a flat dictionary per run.

Times are medians over epochs of the slowest rank's time. `seconds_*` are parts of an epoch in the mean over ranks, so
that they add up. `seconds_imbalance` is the slowest rank's time above that mean.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcgnn.report.read import Run


MIB = 2**20
SENT = ("halo_forward", "halo_backward", "input", "allreduce", "average")  # the traffic of training
METRICS = ("best_val", "test_at_best_val", "test_at_end")
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
    seconds, edges = summary["epoch_seconds"], [rank["edges"] for rank in run.ranks]
    parts = [parts_of_epoch(record["seconds"]) for record in run.records]
    return {
        "epoch_seconds": seconds["median"],
        "epoch_seconds_least": seconds["min"],
        "epoch_seconds_most": seconds["max"],
        **{f"seconds_{part}": statistics.median(epoch[part] for epoch in parts) for part in PARTS},
        "seconds_total": cumulative_seconds(run)[-1],
        "growth_bytes": _number(summary["training_growth_bytes"]["max"]),
        "peak_rss_bytes": _number(summary["peak_rss_bytes"]["max"]),
        "bytes_epoch": _bytes(run, run.records[-1]),
        "bytes_total": cumulative_bytes(run)[-1],
        "halo_rows_per_node": _number(quality.get("halo_rows_per_node")),
        "imbalance_edges": max(edges) / statistics.fmean(edges) if any(edges) else math.nan,
        "threads_per_core": threads_per_core(run.ranks),
        "final_loss": _number(summary["final_loss"]),
        "best_val": _number(summary["best_val"]),
        "test_at_best_val": _number(summary["test_at_best_val"]),
        "test_at_end": _number(run.records[-1].get("test")),
    }


def threads_per_core(ranks: Sequence[Mapping[str, Any]]) -> float:
    """The most threads for one core that any set of ranks had. Ranks that may run on a common core belong together.

    At most 1 if every thread had a core of its own; NaN if the records lack the data.
    """
    sets: list[tuple[set[tuple[str, int]], int]] = []
    for rank in ranks:
        if not rank.get("cores") or not rank.get("threads"):
            return math.nan
        own = {(rank["host"], core) for core in rank["cores"]}
        joined = [one for one in sets if one[0] & own]
        sets = [one for one in sets if one not in joined]
        sets.append((own.union(*(one[0] for one in joined)), rank["threads"] + sum(one[1] for one in joined)))
    return max((threads / len(cores) for cores, threads in sets), default=1.0)


def cumulative_bytes(run: "Run") -> list[float]:
    """Bytes that training has sent on all ranks by the end of each epoch."""
    return list(itertools.accumulate(_bytes(run, record) for record in run.records))


def cumulative_seconds(run: "Run") -> list[float]:
    """Seconds that training has taken on the slowest rank by the end of each epoch; evaluation is not counted."""
    return list(itertools.accumulate(record["seconds"]["epoch"]["max"] for record in run.records))


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


def _bytes(run: "Run", record: dict[str, Any]) -> int:
    """Bytes of training sent by all ranks in an epoch. A single rank passes reductions to MPI, but sends nothing."""
    if run.summary["ranks"] == 1:
        return 0
    return sum(record["bytes"].get(kind, {"sum": 0})["sum"] for kind in SENT)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def named(summary: Mapping[str, Any]) -> str:
    """The name of the metric of a run, with its direction where it is an error. Earlier versions had no such metric."""
    error = summary.get("better", "higher") == "lower"
    return f"{summary['metric']}{' (lower is better)' * error}"
