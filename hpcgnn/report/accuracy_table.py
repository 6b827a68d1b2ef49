"""The table that papers print: mean ± deviation over seeds, for each curve, and which has the best validation."""

import math
import statistics
from typing import TYPE_CHECKING

import pandas as pd

from hpcgnn.report.measures import lower_is_better, named
from hpcgnn.report.tables import Table

if TYPE_CHECKING:
    from hpcgnn.report.study import Study


_MEASURES = {"best_val": "best val", "test_at_best_val": "test there", "test_at_end": "test at the end"}


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
