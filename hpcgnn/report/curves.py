"""The picture of a run, drawn from its files alone."""

import json
from pathlib import Path

from hpcgnn.records import replaced_by


def draw_curves(run_dir):
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
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    evaluated = [record for record in records if record.get("val") is not None]
    figure, axes = plt.subplots(
        1, 2 if evaluated else 1, figsize=(10 if evaluated else 5.5, 3.8), squeeze=False, layout="constrained"
    )
    loss = axes[0, 0]
    loss.plot([r["epoch"] for r in records], [r["loss"] for r in records], color="tab:blue", linewidth=1.4)
    loss.set(xlabel="epoch", ylabel="training loss (with dropout)", title="loss")
    if evaluated:
        metric = axes[0, 1]
        for split, color in (("train", "tab:blue"), ("val", "tab:orange"), ("test", "tab:green")):
            metric.plot(
                [r["epoch"] for r in evaluated],
                [r[split] for r in evaluated],
                color=color,
                linewidth=1.4,
                label=split,
            )
        if summary["best_epoch"] is not None:
            metric.axvline(summary["best_epoch"], color="grey", linewidth=0.8, linestyle=":")
        metric.set(
            xlabel="epoch",
            ylabel=summary["metric"],
            title=f"test {summary['test_at_best_val']:.4f} at best validation"
            if summary["test_at_best_val"] is not None
            else summary["metric"],
        )
        metric.legend(frameon=False)
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{summary['model']}, {summary['schedule']}, {summary['ranks']} ranks", fontsize=11)
    with replaced_by(run_dir / "curves.png") as temporary:
        figure.savefig(temporary, dpi=140, format="png")
    plt.close(figure)
    return run_dir / "curves.png"
