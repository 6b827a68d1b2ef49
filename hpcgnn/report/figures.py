"""The picture of a run, and the four figures of a report, each a function of a study and a sheet.

The same runs give the same bytes, as PNG and PDF.
"""

import io
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.records import replaced_by
from hpcgnn.report.read import MIB, PARTS, Run, cumulative_bytes, cumulative_seconds, named, read_records
from hpcgnn.report.style import IDEAL, bar_styles, drawing, legend, line_styles, log_axis, ranks_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study

COLOURS = {"train": "tab:blue", "val": "tab:orange", "test": "tab:green"}


def draw_curves(run_dir: str | Path) -> Path | None:
    """Draw `curves.png` from `metrics.jsonl`: the loss over the epochs, metrics over epochs, seconds and bytes. Returns
    its path, or None without matplotlib.
    """
    try:
        with drawing() as sheet:
            return _draw(Path(run_dir), sheet)
    except ImportError:
        return None


def _draw(run_dir: Path, sheet: Any) -> Path:
    records = read_records(run_dir)
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    run, epochs = Run(run_dir, run_dir.name, summary, records, []), [record["epoch"] for record in records]
    panels, sent = {"epoch": epochs, "training time, slowest rank (s)": cumulative_seconds(run)}, cumulative_bytes(run)
    if sent[-1]:
        panels["sent since the start, all ranks (MiB)"] = [total / MIB for total in sent]
    if all(record.get(split) is None for record in records for split in COLOURS):
        panels = {}
    side = 2 if panels else 1
    figure = sheet(figsize=(5 * side + 0.5, 3.8 * side))
    loss = figure.add_subplot(side, side, 1)
    loss.plot(epochs, [record["loss"] for record in records], color="tab:blue")
    loss.set(xlabel="epoch", ylabel="training loss (with dropout)", title="loss")
    for place, (name, spent) in enumerate(panels.items(), 2):
        axis = figure.add_subplot(side, side, place)
        _draw_metrics(axis, records, spent, summary)
        axis.set_xlabel(name)
        axis.legend()
    figure.suptitle(f"{summary['model']}, {summary['schedule']}, {summary['ranks']} ranks", fontsize=11)
    with replaced_by(run_dir / "curves.png") as temporary:
        figure.savefig(temporary, dpi=140, format="png")
    return run_dir / "curves.png"


def _draw_metrics(axis: "Axes", records: list[dict[str, Any]], spent: list[float], summary: dict[str, Any]) -> None:
    """The metrics of all splits over a cost. spent: the cost until each record."""
    for split, colour in COLOURS.items():
        known = [place for place, record in enumerate(records) if record.get(split) is not None]
        if known:
            values = [records[place][split] for place in known]
            axis.plot([spent[place] for place in known], values, color=colour, label=split)
    title = named(summary)
    if summary["best_epoch"] is not None:
        axis.axvline(spent[summary["best_epoch"] - records[0]["epoch"]], color="grey", linewidth=0.8, linestyle=":")
    if summary["test_at_best_val"] is not None:
        title = f"test {summary['test_at_best_val']:.4f} at best validation (dotted)"
    elif summary["best_val"] is None and summary["test_at_end"] is not None:
        title = f"test {summary['test_at_end']:.4f} after the last epoch; no validation"
    axis.set(ylabel=named(summary), title=title)


SETTING_UP = ("load", "plan")
NOT_IN_USE = {"color": "#FFFFFF", "hatch": "////", "edgecolor": "#8A8A8A"}
FORMATS = ("png", "pdf")


def draw_figures(study: "Study") -> dict[str, dict[str, bytes]]:
    """{name: {'png': bytes, 'pdf': bytes}} of all figures of a study that have data."""
    found = {}
    with drawing() as sheet:
        for name, (draw, _) in FIGURES.items():
            if name != "memory" or any(profiles(study)):
                found[name] = _rendered(draw, study, sheet)
    return found


def _rendered(draw: Callable[["Study", Any], None], study: "Study", sheet: Any) -> dict[str, bytes]:
    picture = sheet(figsize=(9.2, 3.6))
    draw(study, picture)
    images = {}
    for kind in FORMATS:
        stream = io.BytesIO()
        picture.savefig(stream, format=kind, dpi=160, metadata={"CreationDate": None} if kind == "pdf" else None)
        images[kind] = stream.getvalue()
    return images


def scaling(study: "Study", picture: Any) -> None:
    """Seconds of an epoch and memory of a rank over the ranks, with the ideals as dotted lines."""
    seconds, memory = picture.subplots(1, 2)
    _curves(study, seconds, "epoch_seconds", 1.0)
    seconds.set_ylabel("time of an epoch, slowest rank (s)")
    _curves(study, memory, "growth_bytes", 1 / MIB)
    memory.set_ylabel("training memory, largest rank (MiB)")
    legend(memory)


def _curves(study: "Study", axis: "Axes", name: str, scale: float) -> None:
    """The median of a measure, one curve per label, with bars from the least to the most."""
    for label, style in line_styles(study.labels).items():
        points = study.curve(label)
        points = points[points[name] > 0]
        ranks, middle = points["ranks"], points[name] * scale
        reach = [middle - points[f"{name}_min"] * scale, points[f"{name}_max"] * scale - middle]
        axis.errorbar(ranks, middle, reach, capsize=3, label=label, **style)
        if len(points) > 1:
            shrinks = ranks.iloc[0] / ranks if study.scaling == "strong" else ranks / ranks
            axis.plot(ranks, middle.iloc[0] * shrinks, **IDEAL)
    ranks_axis(axis, study.points["ranks"])
    log_axis(axis.yaxis)


def learning(study: "Study", picture: Any) -> None:
    """Training loss and validation metric over the epochs: medians over repetitions, and their range."""
    loss, metric = picture.subplots(1, 2)
    loss.set(xlabel="epoch", ylabel="training loss (with dropout)")
    metrics = sorted({named(run.summary) for run in study.runs})
    metric.set(xlabel="epoch", ylabel=f"validation {' / '.join(metrics)}")
    groups = study.groups()
    for (label, ranks), style in line_styles(groups).items():
        shown = {**style, "marker": None, "label": f"{label}, {ranks} rank{'s' * (ranks > 1)}"}
        _band(loss, groups[label, ranks], "loss", shown)
        _band(metric, groups[label, ranks], "val", shown)
    legend(loss if not metric.lines else metric)


def _band(axis: "Axes", runs: list["Run"], name: str, style: dict[str, Any]) -> None:
    """The median of a field of the records, cut to the shortest run."""
    known = [[record for record in run.records if record.get(name) is not None] for run in runs]
    length = min(map(len, known))
    if length == 0:
        return
    epochs = np.median([[record["epoch"] for record in records[:length]] for records in known], axis=0)
    values = np.array([[record[name] for record in records[:length]] for records in known])
    axis.plot(epochs, np.median(values, axis=0), **style)
    if len(runs) > 1:
        axis.fill_between(epochs, values.min(0), values.max(0), color=style["color"], alpha=0.1, linewidth=0)


def parts(study: "Study", picture: Any) -> None:
    """Parts of an epoch, one stacked bar per point."""
    axis, base = picture.subplots(), 0.0
    positions = _bars(study, axis)
    for part, style in bar_styles(PARTS).items():
        heights = study.points[f"seconds_{part}"].clip(lower=0) * 1e3
        axis.bar(positions, heights, 0.7, bottom=base, label=PARTS[part], **style)
        base = base + heights
    axis.set_ylabel("time of an epoch (ms)")
    legend(axis)


def memory(study: "Study", picture: Any) -> None:
    """The memory account of the largest rank as stacked bars, and the measured mark, in training's busiest phase."""
    axis = picture.subplots()
    shown = [(x, *found) for x, found in zip(_bars(study, axis), profiles(study), strict=True) if found]
    x, bottom = np.array([x for x, _, _ in shown]), np.zeros(len(shown))
    items = list(dict.fromkeys(item for _, _, account in shown for item in account))
    idle = [item for item in items if item.endswith("not in use then")]
    styles = bar_styles([item for item in items if item not in idle])
    for item, style in {**styles, **dict.fromkeys(idle, NOT_IN_USE)}.items():  # on top of the items in use
        heights = np.array([account.get(item, 0) / MIB for _, _, account in shown])
        axis.bar(x, heights, 0.6, bottom=bottom, label=item, **style)
        bottom += heights
    measured = [mark / MIB for _, mark, _ in shown]
    axis.plot(x, measured, "_", color="black", markersize=26, markeredgewidth=2, label="measured")
    axis.set_ylabel("memory above the base (MiB)")
    legend(axis)


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


# {name: (the function that draws it, how to read it)}
FIGURES: dict[str, tuple[Callable[["Study", Any], None], str]] = {
    "scaling": (scaling, "Bars reach from the least to the most over repetitions. Dotted lines are the ideals."),
    "learning": (learning, "Lines are medians over repetitions, and bands their range."),
    "parts": (parts, "Parts of an epoch in the mean over ranks, and what the slowest rank took above the mean."),
    "memory": (
        memory,
        "The largest rank in the busiest phase of training, above its memory before the graph was read.",
    ),
}
