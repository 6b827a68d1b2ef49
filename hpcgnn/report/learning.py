"""Figures over the epochs: loss and metrics, and the cost of accuracy in bytes and in seconds.

Each is a function of a study and an axis.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.report.measures import MIB, cumulative_bytes, cumulative_seconds, lower_is_better, named
from hpcgnn.report.style import line_styles, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study


def repetitions(study: "Study") -> dict[tuple[str, int], list["Run"]]:
    """{(label, ranks): [runs]}, in the order of the curves."""
    found: dict[tuple[str, int], list[Run]] = {}
    for label in study.labels:
        for run in study.runs:
            if study.label_of(run) == label:
                found.setdefault((label, run.summary["ranks"]), []).append(run)
    return found


def _bands(
    axis: "Axes", groups: Mapping[tuple[str, int], list["Run"]], series: Callable[["Run"], tuple[Any, Any]]
) -> None:
    """Of each group the median over repetitions, and the range that they cover. series(run) -> (x, y); cut to the
    shortest.
    """
    for key, style in line_styles(groups).items():
        _band(axis, groups[key], series, {**style, "marker": None}, _name(key))


def _band(
    axis: "Axes", runs: list["Run"], series: Callable[["Run"], tuple[Any, Any]], style: dict[str, Any], label: str
) -> None:
    drawn = [series(run) for run in runs]
    length = min(len(x) for x, _ in drawn)
    if length == 0:
        return
    x = np.median([x[:length] for x, _ in drawn], axis=0)
    y = np.array([y[:length] for _, y in drawn], float)
    axis.plot(x, np.median(y, axis=0), label=label, **style)
    if len(runs) > 1:
        axis.fill_between(x, y.min(0), y.max(0), color=style["color"], alpha=0.1, linewidth=0)


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]}, {key[1]} rank{'s' if key[1] > 1 else ''}"


def evaluated(run: "Run") -> list[dict[str, Any]]:
    """The records with metrics."""
    return [record for record in run.records if record.get("val") is not None]


def has_metrics(study: "Study") -> bool:
    """Whether any run was evaluated."""
    return any(evaluated(run) for run in study.runs)


def has_traffic(study: "Study") -> bool:
    """Whether any evaluated run has sent anything."""
    return any(evaluated(run) and cumulative_bytes(run)[-1] > 0 for run in study.runs)


def loss(study: "Study", axis: "Axes") -> None:
    """Training loss over the epochs."""
    axis.set(xlabel="epoch", ylabel="training loss (with dropout)")
    _bands(axis, repetitions(study), lambda run: ([r["epoch"] for r in run.records], [r["loss"] for r in run.records]))


def validation(study: "Study", axis: "Axes") -> None:
    """The validation metric over the epochs."""
    axis.set(xlabel="epoch", ylabel=f"validation {metric(study)}")
    _bands(
        axis,
        repetitions(study),
        lambda run: ([r["epoch"] for r in evaluated(run)], [r["val"] for r in evaluated(run)]),
    )


def accuracy_against_bytes(study: "Study", axis: "Axes") -> None:
    """Draw the best validation metric so far over the bytes of training so far."""
    groups = {key: runs for key, runs in repetitions(study).items() if cumulative_bytes(runs[0])[-1] > 0}
    _best_so_far(study, axis, groups, lambda run: [total / MIB for total in cumulative_bytes(run)])
    log_axis(axis.xaxis)
    axis.set_xlabel("sent since the start, all ranks (MiB)")


def accuracy_against_seconds(study: "Study", axis: "Axes") -> None:
    """The best validation metric so far against the time that training has taken until then, evaluation not counted."""
    _best_so_far(study, axis, repetitions(study), cumulative_seconds)
    log_axis(axis.xaxis)
    axis.set_xlabel("training time, slowest rank (s)")


def _best_so_far(
    study: "Study", axis: "Axes", groups: Mapping[tuple[str, int], list["Run"]], costs: Callable[["Run"], list[float]]
) -> None:
    """Curves of the best validation metric over costs(run), a number for each epoch."""

    def series(run: "Run") -> tuple[list[float], np.ndarray]:
        spent = {record["epoch"]: cost for record, cost in zip(run.records, costs(run), strict=True)}
        known = evaluated(run)
        best = (np.minimum if lower_is_better(run.summary) else np.maximum).accumulate(
            [r["val"] for r in known] or [0.0]
        )[: len(known)]
        return [spent[r["epoch"]] for r in known], best

    axis.set_ylabel(f"best validation {metric(study)} so far")
    _bands(axis, groups, series)


def metric(study: "Study") -> str:
    """The name of the metric, of all if they differ, and its direction where it is an error."""
    return " / ".join(sorted({named(run.summary) for run in study.runs}))
