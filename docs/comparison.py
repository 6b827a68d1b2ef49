#!/usr/bin/env python3
"""Draws the comparison with DGL: docs/pictures/comparison.svg from jobs/results/compare.csv.

    python docs/comparison.py

The picture that `jobs/bench/comparison/compare.py` makes has every quantity of every case. This one shows, beside a
short table, what a reader looks for first: memory and processor time of a rank against the number of ranks, and DGL's
single process.
"""

import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "jobs" / "results" / "compare.csv"
PICTURE = HERE / "pictures" / "comparison.svg"
PANELS = (
    ("memory_mb", "training memory of a rank (MB)"),
    ("processor_seconds", "processor time of a rank (s)"),
)
NAMES = {"GCN": "GCN", "SAGE": "GraphSAGE", "GAT": "GAT"}  # in the order of all figures


def each_rank(column, source=SOURCE):
    """{(system, model): {ranks: the column's sum over ranks, by their number}}."""
    found = {}
    with open(source, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ranks = int(row["ranks"])
            found.setdefault((row["system"], row["model"]), {})[ranks] = float(row[column]) / ranks
    return found


def draw(path=PICTURE):
    """Write the picture, the same bytes for the same figures and the same matplotlib."""
    from hpcgnn.report.style import HEIGHT, WIDTH, drawing, legend, line_styles, log_axis, ranks_axis

    with drawing() as sheet:
        figure = sheet(figsize=(2 * WIDTH, HEIGHT))
        for axis, (column, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            found = each_rank(column)
            for name, style in line_styles(NAMES.values()).items():
                model = next(each for each, said in NAMES.items() if said == name)
                rows = found["hpcgnn", model]
                axis.plot(list(rows), list(rows.values()), label=name, **style)
                theirs = {**style, "linestyle": "none", "markerfacecolor": style["color"]}
                axis.plot([1], list(found["DGL", model].values()), label=f"DGL, {name}", **theirs)
            ranks_axis(axis, rows)
            log_axis(axis.yaxis)
            axis.set_ylabel(title)
            axis.margins(y=0.06)  # 0.05 puts a point at half a last digit: rounding depends on the processor
        legend(axis)
        figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
