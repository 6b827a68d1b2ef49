#!/usr/bin/env python3
"""Draws the comparison with DGL: docs/pictures/comparison.svg from jobs/results/compare.csv.

    python docs/comparison.py                          draws it
    python docs/comparison.py compare/compare.json     takes the figures of a new comparison before

The picture that `jobs/bench/comparison/compare.py` makes has every quantity of every case. This one shows, beside a
short table, what a reader looks for first: memory and processor time of a rank against the number of ranks, and DGL's
single process.
"""

import csv
import functools
import json
import sys
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


def take(path, target=SOURCE):
    """Write the figures of a compare.json, and print them as lines of the tables in docs/performance.md."""
    sys.path[:0] = [str(HERE.parent / "jobs" / "bench"), str(HERE.parent)]
    from comparison.results import by_round, growth, own_part, ratios, reference_of, spread

    document = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = []
    for name in ("sage", "gcn", "gat"):
        theirs, measured = reference_of(document, name), functools.partial(by_round, document, name)
        for case in document["cases"]:
            seconds, processor = (measured(case["name"], quantity) for quantity in ("seconds", "cpu_seconds"))
            shares = ratios(seconds, measured(theirs, "seconds"))
            least, share, most = (f"{shares[key]:.2f}" for key in ("min", "median", "max"))
            of_processor = ratios(processor, measured(theirs, "cpu_seconds"))["median"]
            memory, base = (growth(document, name, each, "sum")["median"] for each in (case["name"], theirs))
            ours = case["system"] == "hpcgnn"
            row = {
                "model": name.upper(),
                "system": "hpcgnn" if ours else "DGL",
                "ranks": case.get("ranks") or 1,
                "threads": case.get("threads") or document["settings"]["threads"],
                "seconds": f"{spread(seconds.values())['median']:.3f}",
                "seconds_share": share if ours else "1",
                "seconds_share_min": "" if least == most else least,
                "seconds_share_max": "" if least == most else most,
                "processor_seconds": f"{spread(processor.values())['median']:.2f}",
                "processor_share": f"{of_processor:.2f}" if ours else "1",
                "memory_mb": f"{memory / 1e6:.0f}",
                "memory_share": f"{memory / base:.2f}" if ours else "1",
                "page_faults": f"{spread(measured(case['name'], 'minor_faults').values())['median']:.0f}",
            }
            rows.append(row)
            own = own_part(document, name, case["name"]) / base
            print(*row.values(), f"{own:.2f} less the base of each process", sep=" | ")
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


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
    for document in sys.argv[1:]:
        take(document)
    draw()
