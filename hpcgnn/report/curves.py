"""The picture of a run, drawn from its files alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn.records import replaced_by
from hpcgnn.report.measures import MIB, cumulative_bytes, cumulative_seconds, named
from hpcgnn.report.read import Run
from hpcgnn.report.style import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    evaluated = any(record.get(split) is not None for record in records for split in COLOURS)
    costs = _costs(Run(run_dir, run_dir.name, summary, records, [])) if evaluated else {}
    rows, columns = (2, 2) if costs else (1, 1)
    figure = sheet(figsize=(5 * columns + 0.5, 3.8 * rows))
    axes = figure.subplots(rows, columns, squeeze=False)
    loss, *others = axes.flat
    loss.plot(*_curve(records, "loss", [record["epoch"] for record in records]), color="tab:blue", linewidth=1.4)
    loss.set(xlabel="epoch", ylabel="training loss (with dropout)", title="loss")
    for axis, (name, spent) in zip(others, costs.items(), strict=False):
        _draw_metrics(axis, records, spent, summary)
        axis.set_xlabel(name)
        axis.legend()
    for axis in others[len(costs) :]:
        axis.remove()
    figure.suptitle(f"{summary['model']}, {summary['schedule']}, {summary['ranks']} ranks", fontsize=11)
    with replaced_by(run_dir / "curves.png") as temporary:
        figure.savefig(temporary, dpi=140, format="png")
    return run_dir / "curves.png"


def _costs(run: Run) -> dict[str, list[float]]:
    """{what metrics are drawn over: its value at each record}; bytes only where any are sent."""
    sent = [total / MIB for total in cumulative_bytes(run)]
    return {
        "epoch": [record["epoch"] for record in run.records],
        "training time, slowest rank (s)": cumulative_seconds(run),
        **({"sent since the start, all ranks (MiB)": sent} if sent[-1] else {}),
    }


def _curve(records: list[dict[str, Any]], name: str, spent: list[float]) -> tuple[list[float], list[float]]:
    """([costs], [values]) where there is a value. spent: the cost until each record."""
    known = [(cost, record[name]) for cost, record in zip(spent, records, strict=True) if record.get(name) is not None]
    return [cost for cost, _ in known], [value for _, value in known]


def _draw_metrics(axis: "Axes", records: list[dict[str, Any]], spent: list[float], summary: dict[str, Any]) -> None:
    for split, colour in COLOURS.items():
        curve = _curve(records, split, spent)
        if curve[0]:
            axis.plot(*curve, color=colour, linewidth=1.4, label=split)
    title = named(summary)
    for record, cost in zip(records, spent, strict=True):
        if record["epoch"] == summary["best_epoch"]:
            axis.axvline(cost, color="grey", linewidth=0.8, linestyle=":")
    if summary["test_at_best_val"] is not None:
        title = f"test {summary['test_at_best_val']:.4f} at best validation (dotted)"
    elif summary["best_val"] is None and summary["test_at_end"] is not None:
        title = f"test {summary['test_at_end']:.4f} after the last epoch; no validation"
    axis.set(ylabel=named(summary), title=title)
