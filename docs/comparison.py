#!/usr/bin/env python3
"""Draws the comparison with DGL: docs/pictures/comparison.svg from jobs/results/compare.csv.

    python docs/comparison.py

The picture that `jobs/bench/comparison/compare.py` makes has every quantity of every case. This one shows, beside a
short table, what a reader looks for first: time and memory as shares of DGL's, against the number of ranks.
"""

import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "jobs" / "results" / "compare.csv"
PICTURE = HERE / "pictures" / "comparison.svg"
PANELS = (("seconds_share", "seconds per epoch"), ("memory_share", "training memory of all ranks"))


def shares(source=SOURCE):
    """{model: {ranks: row}} of our own rows; a row is {column: text}."""
    found = {}
    with open(source, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["system"] == "hpcgnn":
                found.setdefault(row["model"], {})[int(row["ranks"])] = row
    return found


def draw(path=PICTURE):
    """Write the picture, the same bytes for the same figures and the same matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "hpcgnn"
    figure, axes = plt.subplots(1, len(PANELS), figsize=(8.5, 3.1), sharey=True, layout="constrained")
    for axis, (column, title) in zip(axes, PANELS, strict=True):
        for model, marker in zip(shares(), "os^", strict=False):
            rows = shares()[model]
            axis.plot(list(rows), [float(row[column]) for row in rows.values()], marker=marker, label=model)
        axis.axhline(1, linestyle=":", color="black")
        axis.text(1, 0.98, "DGL: 1 process, 2 threads", va="top", fontsize=8)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 2, 4, 8], ["1 × 2", "2 × 1", "4 × 1", "8 × 1"])
        axis.set(title=title, xlabel="ranks × threads, on two cores", ylim=(0, 1.1))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of DGL's")
    axes[1].legend(loc="lower right", frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw()
