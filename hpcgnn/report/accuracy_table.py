"""Accuracy as tables: mean ± deviation over seeds, as papers print it, and the cost of nearly the best accuracy."""

import math
import statistics
from typing import TYPE_CHECKING

import pandas as pd

from hpcgnn.report.learning import evaluated, repetitions
from hpcgnn.report.measures import MIB, cumulative_bytes, cumulative_seconds, lower_is_better, named
from hpcgnn.report.tables import SPREAD_NOTE, Table, number, spread

if TYPE_CHECKING:
    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study


_MEASURES = {"best_val": "best val", "test_at_best_val": "test there", "test_at_end": "test at the end"}
SHARES = (95, 98, 99)  # percent
_COSTS = {"epochs": 1.0, "seconds": 1.0, "bytes": 1 / MIB}


def accuracy_tables(study: "Study") -> list[Table]:
    """[the table]; [] where no curve has two runs on as many ranks, which a deviation needs."""
    if (study.points["repetitions"] < 2).all():
        return []
    records, rows = [], []
    for (label, ranks), group in study.table.groupby(["label", "ranks"], sort=False):
        record = {"label": label, "ranks": ranks, "runs": len(group), "seeds": group["seed"].nunique()}
        cells = [label, str(ranks), str(len(group)), str(record["seeds"])]
        for name in _MEASURES:
            mean, deviation = _spread([float(value) for value in group[name]])
            record |= {f"{name}_mean": mean, f"{name}_deviation": deviation}
            cells.append(_shown(mean, deviation))
        records.append(record)
        rows.append(cells)
    frame = pd.DataFrame(records)
    note = f"Metric: {named(study.runs[0].summary)}. Mean ± standard deviation (of a sample: divided by runs − 1) over "
    note += "runs that differ in seed; a curve with one run has no deviation."
    known = frame["best_val_mean"].dropna()
    if len(known) > 1:
        best = known.idxmin() if lower_is_better(study.runs[0].summary) else known.idxmax()
        note += f" Best mean validation: {frame.loc[best, 'label']}, on {frame.loc[best, 'ranks']} ranks."
    if (frame["seeds"] < frame["runs"]).any():
        note += " Runs of one seed are the same run again, and say nothing about the deviation over seeds."
    head = ["curve", "ranks", "runs", "seeds", *_MEASURES.values()]
    return [Table("accuracy", "Accuracy over seeds", head, rows, frame, note)]


def _spread(values: list[float]) -> tuple[float, float]:
    """(mean, standard deviation), NaN where there is none."""
    if any(math.isnan(value) for value in values):
        return math.nan, math.nan
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def _shown(mean: float, deviation: float) -> str:
    if math.isnan(mean):
        return "–"
    return f"{mean:.4f}" + (f" ± {deviation:.4f}" if not math.isnan(deviation) else "")


def target_tables(study: "Study") -> list[Table]:
    """[what the shares of the best validation metric in the study took]; [] without a metric above 0."""
    error = lower_is_better(study.runs[0].summary)
    known = [record["val"] for run in study.runs for record in evaluated(run)]
    best = (min if error else max)(known, default=0.0)
    if best <= 0:
        return []
    records, rows = [], []
    for (label, ranks), runs in repetitions(study).items():
        cells = [label, str(ranks)]
        for share in SHARES:
            target = best * 100 / share if error else best * share / 100
            reached = [cost for run in runs if (cost := _cost_of(run, target, error))]
            point: dict[str, float] = {"repetitions": len(reached)}
            for place, name in enumerate(_COSTS):
                values = sorted(cost[place] for cost in reached) or [math.nan]
                point |= {name: statistics.median(values), f"{name}_min": values[0], f"{name}_max": values[-1]}
            records.append(
                {"label": label, "ranks": ranks, "runs": len(runs), "share": share, "target": target} | point
            )
            cells += [f"{len(reached)} of {len(runs)}", *(spread(point, name, scale) for name, scale in _COSTS.items())]
        rows.append(cells)
    head = ["curve", "ranks"]
    for share in SHARES:
        head += [f"runs that reach {share} %", "epochs", "training (s)", "sent (MiB)"]
    note = f"Shares are of the best validation {named(study.runs[0].summary)} of any run here, {number(best, 4)}. "
    note += (
        f"{SPREAD_NOTE} Until the first evaluation that reaches the share: time of training on the slowest rank, and "
    )
    note += "bytes of training of all ranks, without evaluation."
    return [Table("targets", "What nearly the best accuracy took", head, rows, pd.DataFrame(records), note)]


def _cost_of(run: "Run", target: float, error: bool) -> tuple[int, float, float] | None:
    """(epoch, seconds, bytes) until a run's validation metric reaches the target, None if it never does."""
    for record, seconds, sent in zip(run.records, cumulative_seconds(run), cumulative_bytes(run), strict=True):
        value = record.get("val")
        if value is not None and (value <= target if error else value >= target):
            return record["epoch"], seconds, sent
    return None
