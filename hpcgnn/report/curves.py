"""The picture of a run, drawn from its files alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn.records import counted_from_one, replaced_by
from hpcgnn.report.measures import named

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLOURS = {"train": "tab:blue", "val": "tab:orange", "test": "tab:green"}


def draw_curves(run_dir: str | Path) -> Path | None:
    """Draw `curves.png` (loss and metrics over the epochs) from `metrics.jsonl`. Returns its path, or None without
    matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run_dir = Path(run_dir)
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = counted_from_one([json.loads(line) for line in lines])
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    curves = {split: _curve(records, split) for split in COLOURS}
    curves = {split: curve for split, curve in curves.items() if curve[0]}
    figure, axes = plt.subplots(
        1, 2 if curves else 1, figsize=(10 if curves else 5.5, 3.8), squeeze=False, layout="constrained"
    )
    axes[0, 0].plot(*_curve(records, "loss"), color="tab:blue", linewidth=1.4)
    axes[0, 0].set(xlabel="epoch", ylabel="training loss (with dropout)", title="loss")
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    if curves:
        _draw_metrics(axes[0, 1], curves, summary)
    figure.suptitle(f"{summary['model']}, {summary['schedule']}, {summary['ranks']} ranks", fontsize=11)
    with replaced_by(run_dir / "curves.png") as temporary:
        figure.savefig(temporary, dpi=140, format="png")
    plt.close(figure)
    return run_dir / "curves.png"


def _curve(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """([epochs], [values]) where there is a value."""
    known = [record for record in records if record.get(name) is not None]
    return [record["epoch"] for record in known], [record[name] for record in known]


def _draw_metrics(axis: "Axes", curves: Mapping[str, tuple[list[int], list[float]]], summary: dict[str, Any]) -> None:
    from hpcgnn.report.coincide import merge_coinciding

    series = {
        split: axis.plot(*curve, color=COLOURS[split], linewidth=1.4, label=split) for split, curve in curves.items()
    }
    title = named(summary)
    if summary["best_epoch"] is not None:
        axis.axvline(summary["best_epoch"], color="grey", linewidth=0.8, linestyle=":")
    if summary["test_at_best_val"] is not None:
        title = f"test {summary['test_at_best_val']:.4f} at best validation (dotted)"
    elif summary["best_val"] is None and summary["test_at_end"] is not None:
        title = f"test {summary['test_at_end']:.4f} after the last epoch; no validation"
    axis.set(xlabel="epoch", ylabel=named(summary), title=title)
    axis.legend(frameon=False)
    merge_coinciding(axis, series)
    axis.legend(frameon=False)
