"""The picture of a run, and the figures of a report: each is one panel, drawn by a function of a study and its axes.

A figure that would show one number is not drawn: the table has it.

The same runs give the same bytes, as PNG and PDF.
"""

import io
import itertools
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.records import replaced_by
from hpcgnn.report.read import (
    MIB,
    PARTS,
    Run,
    cumulative_bytes,
    cumulative_seconds,
    named,
    read_records,
    short_graph,
)
from hpcgnn.report.style import (
    HEIGHT,
    IDEAL,
    MODELS,
    SCHEDULES,
    WIDTH,
    bar_styles,
    drawing,
    epochs_axis,
    from_zero,
    legend,
    line_styles,
    log_axis,
    ranks_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study

SPLITS = {"train": "training", "val": "validation", "test": "test"}


def draw_curves(run_dir: str | Path) -> Path | None:
    """Draw `curves.png` from `metrics.jsonl`: the loss over the epochs, metrics over epochs, seconds and bytes. Returns
    its path, or None for a single epoch. Raises ImportError without matplotlib.
    """
    with drawing() as sheet:
        return _draw(Path(run_dir), sheet)


def _draw(run_dir: Path, sheet: Any) -> Path | None:
    records = read_records(run_dir)
    if len(records) < 2:
        return None
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    run, epochs = Run(run_dir, run_dir.name, summary, records, []), [record["epoch"] for record in records]
    panels, sent = {"epoch": epochs, "training time, slowest rank (s)": cumulative_seconds(run)}, cumulative_bytes(run)
    if sent[-1]:
        panels["rows and gradients sent, all ranks (MiB)"] = [total / MIB for total in sent]
    if all(sum(record.get(split) is not None for record in records) < 2 for split in SPLITS):
        panels = {}
    side, styles = 2 if panels else 1, line_styles(SPLITS)
    figure = sheet(figsize=(WIDTH * side, HEIGHT * side))
    loss = figure.add_subplot(side, side, 1)
    for split, field in (("train", "loss"), ("val", "val_loss")):
        _draw_line(loss, epochs, [record.get(field) for record in records], SPLITS[split], styles[split])
    loss.set_ylabel("loss")
    for place, (name, spent) in enumerate(panels.items(), 2):
        axis = figure.add_subplot(side, side, place)
        for split, style in styles.items():
            _draw_line(axis, spent, [record.get(split) for record in records], SPLITS[split], style)
        if summary["best_epoch"] is not None:
            axis.axvline(spent[summary["best_epoch"] - epochs[0]], color="grey", linewidth=0.8, linestyle=":")
        axis.set(xlabel=name, ylabel=named(summary), xlim=(0, None))
    for axis in figure.axes:
        from_zero(axis)
        legend(axis)
    for axis in figure.axes[:2]:
        epochs_axis(axis)
    figure.suptitle(_heading(run), fontsize=8)
    with replaced_by(run_dir / "curves.png") as temporary:
        figure.savefig(temporary, dpi=180, format="png")
    return run_dir / "curves.png"


def _draw_line(axis: "Axes", spent: list[float], values: list[float | None], name: str, style: dict[str, Any]) -> None:
    """The values that are known, over a cost until each."""
    known = [(x, y) for x, y in zip(spent, values, strict=True) if y is not None]
    if known:
        axis.plot(*zip(*known, strict=True), label=name, **{**style, "marker": None})


def _heading(run: Run) -> str:
    """The model, the graph and the ranks of a run, and its result."""
    said, ranks = run.summary, run.summary["ranks"]
    model, schedule = MODELS.get(said["model"], said["model"]), SCHEDULES.get(said["schedule"], said["schedule"])
    text = f"{model} ({schedule}) on {short_graph(run)}, {ranks} rank{'s' * (ranks > 1)}"
    if said["test_at_best_val"] is not None:
        text += f"\ntest {said['metric']} {said['test_at_best_val']:.4f} at the best validation (dotted)"
    elif said["best_val"] is None and said["test_at_end"] is not None:
        text += f"\ntest {said['metric']} {said['test_at_end']:.4f} after the last epoch; no validation"
    return text


SETTING_UP = ("load", "plan")
NOT_IN_USE = {"color": "#FFFFFF", "hatch": "////", "edgecolor": "#8A8A8A"}
UNKNOWN = {"color": "#FFFFFF", "edgecolor": "#8A8A8A", "linestyle": ":"}
SMALL, IDLE, REST = "smaller items", "resident and not in use", "not in the account"
FORMATS = ("png", "pdf")
SPREAD = "Bars on curves reach from the least to the most over repetitions; dotted lines are the ideal."
BANDS = (
    "Learning curves are medians over repetitions, in a band from the least to the most; a curve that all numbers of "
    "ranks share is drawn once."
)


def draw_figures(study: "Study") -> dict[str, dict[str, bytes]]:
    """{name: {'png': bytes, 'pdf': bytes}} of all figures of a study that have more than one number to show."""
    found = {}
    with drawing() as sheet:
        for name, (draw, _, _) in FIGURES.items():
            picture = sheet(figsize=(WIDTH, HEIGHT))
            if draw(study, picture.subplots()):
                found[name] = _rendered(picture)
    return found


def _rendered(picture: Any) -> dict[str, bytes]:
    images = {}
    for kind in FORMATS:
        stream = io.BytesIO()
        picture.savefig(stream, format=kind, dpi=220, metadata={"CreationDate": None} if kind == "pdf" else None)
        images[kind] = stream.getvalue()
    return images


def scaling_time(study: "Study", axis: "Axes") -> bool:
    """Seconds of an epoch over the ranks."""
    axis.set_ylabel("time of an epoch (s)")
    return _scaling(study, axis, "epoch_seconds", 1.0)


def scaling_memory(study: "Study", axis: "Axes") -> bool:
    """Memory of a rank over the ranks."""
    axis.set_ylabel("training memory of a rank (MiB)")
    return _scaling(study, axis, "growth_bytes", 1 / MIB)


def _scaling(study: "Study", axis: "Axes", name: str, scale: float) -> bool:
    """The median of a measure, one curve per label, with bars from the least to the most, and the ideals dotted."""
    ideal, curves = "ideal", {label: (points := study.curve(label))[points[name] > 0] for label in study.labels}
    for label, style in line_styles(study.labels).items():
        points = curves[label]
        ranks, middle = points["ranks"], points[name] * scale
        reach = [middle - points[f"{name}_min"] * scale, points[f"{name}_max"] * scale - middle]
        axis.errorbar(ranks, middle, reach, capsize=2, label=label, **style)
    for points in curves.values():  # behind the curves in the legend
        if len(points) > 1:
            shrinks = points["ranks"].iloc[0] / points["ranks"] if study.scaling == "strong" else points["ranks"] ** 0
            axis.plot(points["ranks"], points[name].iloc[0] * scale * shrinks, label=ideal, **IDEAL)
            ideal = "_"  # one line of the legend for all
    ranks_axis(axis, study.points["ranks"])
    log_axis(axis.yaxis)
    legend(axis)
    return ideal == "_"


def learning_loss(study: "Study", axis: "Axes") -> bool:
    """Training loss over the epochs."""
    axis.set_ylabel("training loss")
    return _learning(study, axis, "loss")


def learning_metric(study: "Study", axis: "Axes") -> bool:
    """Validation metric over the epochs."""
    axis.set_ylabel(f"validation {' / '.join(sorted({named(run.summary) for run in study.runs}))}")
    return _learning(study, axis, "val")


def _learning(study: "Study", axis: "Axes", name: str) -> bool:
    """Medians over repetitions, and their range; one curve where all numbers of ranks agree."""
    groups, colours = study.groups(), line_styles(study.labels)
    dashes = line_styles(sorted({ranks for _, ranks in groups}))
    for label in study.labels:
        own = {ranks: _median(runs, name) for (each, ranks), runs in groups.items() if each == label}
        same = all(_alike(one, other) for one, other in itertools.pairwise(own.values()))
        for ranks in list(own)[: 1 if same else None]:
            dash = (colours[label] if same else dashes[ranks])["linestyle"]
            said = "" if same else f", {ranks} rank{'s' * (ranks > 1)}"
            style = {"color": colours[label]["color"], "linestyle": dash, "label": label + said}
            _band(axis, own[ranks], style)
    epochs_axis(axis)
    from_zero(axis)
    legend(axis)
    return any(len(line.get_xdata()) > 1 for line in axis.lines)


def _median(runs: list["Run"], name: str) -> np.ndarray:
    """(4, m): epochs, and the median, the least and the most of a field of the records, cut to the shortest run."""
    known = [[(each["epoch"], each[name]) for each in run.records if each.get(name) is not None] for run in runs]
    length = min(map(len, known))
    epochs, values = np.array([each[:length] for each in known], float).reshape(len(runs), length, 2).T
    return np.stack([np.median(epochs, axis=1), np.median(values, axis=1), values.min(1), values.max(1)])


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two curves are one line to the eye."""
    if one.shape != other.shape or not one.size:
        return one.shape == other.shape
    return np.allclose(one, other, rtol=0, atol=0.005 * np.ptp(one[1:]))


def _band(axis: "Axes", curve: np.ndarray, style: dict[str, Any]) -> None:
    """A curve and its range."""
    epochs, middle, least, most = curve
    if len(epochs):
        axis.plot(epochs, middle, **style)
        axis.fill_between(epochs, least, most, color=style["color"], alpha=0.1, linewidth=0)


def parts(study: "Study", axis: "Axes") -> bool:
    """Parts of an epoch, one stacked bar per point."""
    base = 0.0
    positions = _bars(study, axis)
    for part, style in bar_styles(PARTS).items():
        heights = study.points[f"seconds_{part}"].clip(lower=0) * 1e3
        axis.bar(positions, heights, 0.7, bottom=base, label=PARTS[part], **style)
        base = base + heights
    axis.set_ylabel("time of an epoch (ms)")
    legend(axis, columns=2, above=True)
    return True


def memory(study: "Study", axis: "Axes") -> bool:
    """The memory account of the largest rank as stacked bars, and the measured mark, in training's busiest phase."""
    shown = [(x, *found) for x, found in zip(_bars(study, axis), profiles(study), strict=True) if found]
    if not shown:
        return False
    accounts = [_small_together(account, mark) for _, mark, account in shown]
    x, bottom = np.array([x for x, _, _ in shown]), np.zeros(len(shown))
    items = list(dict.fromkeys(item for account in accounts for item in account))
    styles = bar_styles([item for item in items if item not in (IDLE, REST)])
    for item, style in {**styles, IDLE: NOT_IN_USE, REST: UNKNOWN}.items():  # on top of the items in use
        heights = np.array([account.get(item, 0) / MIB for account in accounts])
        if heights.any():
            axis.bar(x, heights, 0.6, bottom=bottom, label=item.split(",")[0], **style)
            bottom += heights
    measured = [mark / MIB for _, mark, _ in shown]
    axis.plot(x, measured, "_", color="black", markersize=14, markeredgewidth=1.5, label="measured")
    axis.set_ylabel("memory above the base (MiB)")
    legend(axis, columns=2, above=True)
    return True


def _small_together(account: dict[str, int], measured: int) -> dict[str, int]:
    """{item: bytes}: items of at least a thirtieth of the measured bytes, the smaller ones as one item, then memory not
    in use, and the bytes that the account lacks.
    """
    found = {item: size for item, size in account.items() if size >= measured / 30 and "not in use" not in item}
    idle = sum(size for item, size in account.items() if "not in use" in item)
    small = sum(account.values()) - sum(found.values()) - idle
    return {**found, SMALL: small, IDLE: idle, REST: max(0, measured - sum(account.values()))}


def profiles(study: "Study") -> list[tuple[int, dict[str, int]] | None]:
    """[(measured bytes, {item: bytes})] of the largest rank in the busiest phase of training, for each point of the
    study; None for a point without a run of `--profile-memory`. Bytes are above those before the graph was read.
    """
    found = []
    for runs in study.groups().values():
        profiled = [rank["memory_profile"] for run in runs for rank in run.ranks if rank.get("memory_profile")]
        found.append(max(map(_busiest, profiled), key=lambda mark: mark[0], default=None))
    return found


def _busiest(profile: dict[str, Any]) -> tuple[int, dict[str, int]]:
    marks = {phase: mark for phase, mark in profile["phase_peak_bytes"].items() if phase not in SETTING_UP}
    phase = max(marks, key=lambda name: marks[name])
    return marks[phase] - profile["base_bytes"], profile["account_bytes"][phase]


def _bars(study: "Study", axis: "Axes") -> np.ndarray:
    """Ticks for one bar per point, in the order of `study.points`, with a gap and the name between curves; returns
    their positions.
    """
    labels = study.points["label"].tolist()
    groups = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    positions = np.arange(len(labels)) + 0.7 * np.array([groups[label] for label in labels])
    axis.set_xticks(positions, [str(ranks) for ranks in study.points["ranks"]])
    axis.set_xlabel("MPI ranks")
    axis.grid(False, axis="x")
    room = max(0.0, 5 - len(labels)) / 2  # so that a single bar is no wall
    axis.set_xlim(positions[0] - 0.6 - room, positions[-1] + 0.6 + room)
    if len(groups) > 1:
        places = [[x for x, own in zip(positions, labels, strict=True) if own == label] for label in groups]
        each = 48 / len(labels)  # letters that fit below a bar
        names = [
            textwrap.fill(label, max(8, int(each * len(place)))) for label, place in zip(groups, places, strict=True)
        ]
        axis.xaxis.remove_overlapping_locs = False  # a name may stand below the bar in the middle
        axis.set_xticks([np.mean(place) for place in places], names, minor=True, fontsize=7)
        axis.tick_params(axis="x", which="minor", length=0, pad=15)
    return positions


# {name: (the function that draws it and says whether it is worth a look, its caption, how to read it)}
FIGURES: dict[str, tuple[Callable[["Study", "Axes"], bool], str, str]] = {
    "scaling-time": (scaling_time, "Time of an epoch, on the slowest rank", SPREAD),
    "scaling-memory": (scaling_memory, "Training memory of the largest rank", SPREAD),
    "learning-loss": (learning_loss, "Training loss, with dropout", BANDS),
    "learning-metric": (learning_metric, "Validation", BANDS),
    "parts": (
        parts,
        "Parts of an epoch",
        "Parts of an epoch are means over ranks; the last is what the slowest rank took above the mean.",
    ),
    "memory": (
        memory,
        "Memory of the largest rank",
        "The memory account is of the busiest phase of training, above the memory before the graph was read.",
    ),
}
