"""Figures over the number of ranks: times, speed-up, memory, bytes, balance, each a function of a study and an axis."""

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.report.measures import MIB, PARTS
from hpcgnn.report.remarks import SHARED, remarks
from hpcgnn.report.style import IDEAL, WARNING, bar_styles, line_styles, log_axis, note_below, ranks_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hpcgnn.report.study import Study


def curves(study: "Study", axis: "Axes", name: str, scale: float = 1.0) -> None:
    """The median of a measure over the ranks, one curve per label, with bars from the least to the most where they
    differ.
    """
    styles = line_styles(study.labels)
    for label in study.labels:
        points = study.curve(label).dropna(subset=[name])
        if points.empty:
            continue
        middle = points[name] * scale
        axis.plot(points["ranks"], middle, label=label, **styles[label])
        if f"{name}_min" in points and (points[f"{name}_min"] < points[f"{name}_max"]).any():
            reach = [middle - points[f"{name}_min"] * scale, points[f"{name}_max"] * scale - middle]
            colour = styles[label]["color"]
            axis.errorbar(points["ranks"], middle, reach, fmt="none", ecolor=colour, capsize=3, label="_nolegend_")
    ranks_axis(axis, study.points["ranks"])


def _ideal(study: "Study", axis: "Axes", value: Callable[[Any], tuple[Any, Any]]) -> None:
    """The ideal as a dotted line. value(curve) -> (ranks, values)."""
    for index, label in enumerate(study.labels):
        ranks, values = value(study.curve(label))
        axis.plot(ranks, values, label="ideal" if index == 0 else None, **IDEAL)


def _shrinking(study: "Study", name: str, scale: float = 1.0) -> Callable[[Any], tuple[Any, Any]]:
    """Return the ideal of a quantity divided among ranks: 1/P of the fewest ranks' in strong scaling, constant in
    weak.
    """

    def value(curve: Any) -> tuple[Any, Any]:
        ranks, first = curve["ranks"], curve[name].iloc[0] * scale
        return ranks, first * (ranks.iloc[0] / ranks if study.mode == "strong" else ranks / ranks)

    return value


def epoch_time(study: "Study", axis: "Axes") -> None:
    """Seconds of an epoch on the slowest rank."""
    if study.mode != "none":
        _ideal(study, axis, _shrinking(study, "epoch_seconds"))
    curves(study, axis, "epoch_seconds")
    log_axis(axis.yaxis)
    _mark_shared(study, axis, "epoch_seconds")
    axis.set_ylabel("time of an epoch, slowest rank (s)")
    note_below(axis, remarks(study))


def speedup(study: "Study", axis: "Axes") -> None:
    """Speed-up relative to the fewest ranks of each curve."""
    _ideal(study, axis, lambda curve: (curve["ranks"], curve["ranks"]))
    curves(study, axis, "speedup")
    axis.set_yscale("log", base=2)
    ranks, least = sorted(set(study.points["ranks"])), study.points["speedup"].min()
    below = [2.0**-k for k in range(1, 8) if 2.0 ** (1 - k) > least]  # slower than on the fewest ranks
    axis.set_yticks([*below, *ranks], [f"{tick:g}" for tick in (*below, *ranks)])
    axis.minorticks_off()
    _mark_shared(study, axis, "speedup")
    axis.set_ylabel("speed-up" if study.mode == "strong" else "scaled speed-up")
    note_below(axis, remarks(study))


def efficiency(study: "Study", axis: "Axes") -> None:
    """Parallel efficiency relative to the fewest ranks of each curve."""
    _ideal(study, axis, lambda curve: (curve["ranks"], 100 + 0 * curve["ranks"]))
    curves(study, axis, "efficiency", 100)
    axis.set_ylim(bottom=0)
    _mark_shared(study, axis, "efficiency", 100)
    axis.set_ylabel("parallel efficiency (%)")
    note_below(axis, remarks(study))


def _mark_shared(study: "Study", axis: "Axes", name: str, scale: float = 1.0) -> None:
    """Put a dagger at each point with ranks that shared cores; the note below explains it."""
    for _, point in study.points.iterrows():
        if point["threads_per_core_max"] > 1 and point[name] == point[name]:  # NaN: there is no point
            place = (point["ranks"], point[name] * scale)
            axis.annotate(SHARED, place, (4, 3), textcoords="offset points", fontsize=10, color=WARNING, weight="bold")


def memory(study: "Study", axis: "Axes") -> None:
    """Memory that training adds to the largest rank."""
    if study.mode != "none":
        _ideal(study, axis, _shrinking(study, "growth_bytes", 1 / MIB))
    curves(study, axis, "growth_bytes", 1 / MIB)
    log_axis(axis.yaxis)
    axis.set_ylabel("training memory, largest rank (MiB)")


def bytes_sent(study: "Study", axis: "Axes") -> None:
    """Draw the bytes that training sends in an epoch, over all ranks."""
    curves(study, axis, "bytes_epoch", 1 / MIB)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("sent per epoch, all ranks (MiB)")


def imbalances(study: "Study", axis: "Axes") -> None:
    """How much more than the mean the largest rank has, one group of bars per point."""
    names = {"nodes": "nodes", "edges": "edges", "halo": "halo rows", "memory": "training memory"}
    styles, width = bar_styles(names), 0.8 / len(names)
    positions = label_bars(study, axis)
    for index, (name, shown) in enumerate(names.items()):
        heights = study.points[f"imbalance_{name}"].fillna(1)
        axis.bar(positions + (index - 1.5) * width, heights, width, label=shown, **styles[name])
    axis.axhline(1, **IDEAL)
    axis.set_ylim(bottom=0.9)
    axis.set_ylabel("largest rank / mean of ranks")


def breakdown(study: "Study", axis: "Axes") -> None:
    """Where the time of an epoch goes, one stacked bar per point."""
    styles, base = bar_styles(PARTS), 0.0
    positions = label_bars(study, axis)
    for part, shown in PARTS.items():
        heights = study.points[f"seconds_{part}"].clip(lower=0) * 1e3
        axis.bar(positions, heights, 0.7, bottom=base, label=shown, **styles[part])
        base = base + heights
    axis.set_ylabel("time of an epoch (ms)")


def label_bars(study: "Study", axis: "Axes") -> np.ndarray:
    """Ticks for one bar per point, in the order of `study.points`, with a gap and the name between curves; returns
    their positions.
    """
    labels = study.points["label"].tolist()
    groups = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    positions = np.arange(len(labels)) + 0.7 * np.array([groups[label] for label in labels])
    axis.set_xticks(positions, [str(ranks) for ranks in study.points["ranks"]])
    axis.set_xlabel("MPI ranks" + (", curve" if len(groups) > 1 else ""))
    axis.grid(False, axis="x")
    if len(groups) > 1:
        places = [[x for x, own in zip(positions, labels, strict=True) if own == label] for label in groups]
        each = 64 / len(labels)  # letters that fit below a bar
        names = [
            textwrap.fill(label, max(8, int(each * len(place)))) for label, place in zip(groups, places, strict=True)
        ]
        axis.xaxis.remove_overlapping_locs = False  # a name may stand below the bar in the middle
        axis.set_xticks([np.mean(place) for place in places], names, minor=True, fontsize=8)
        axis.tick_params(axis="x", which="minor", length=0, pad=16)
    return positions
