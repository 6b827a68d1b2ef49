"""The tables of a report, each as numbers for programs and as text for people.

Numbers are CSV with full precision and units in the names of columns. Texts are Markdown, LaTeX and HTML, rounded, with
median [least, most] over repetitions.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
from tabulate import tabulate

from hpcgnn.report.measures import MIB, PARTS
from hpcgnn.report.remarks import SHARED, remarks

if TYPE_CHECKING:
    from hpcgnn.report.study import Study


TIMES = "×"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: name of its files.
        head, rows: text for people.
        frame: the numbers behind it.
        note: explanations for readers.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[str]]
    frame: pd.DataFrame
    note: str = field(default="")

    def markdown(self) -> str:
        """GitHub's dialect; bars in cells are escaped."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.rows]
        parts = [f"**{self.title}**", tabulate(rows, self.head, "pipe", disable_numparse=True), self.note]
        return "\n\n".join(part for part in parts if part) + "\n"

    def latex(self) -> str:
        """A `tabular` with the rules of the package booktabs; special characters are escaped."""
        text = tabulate(self.rows, self.head, "latex_booktabs", disable_numparse=True)
        text = text.replace(TIMES, r"$\times$").replace("–", "--").replace(SHARED, r"$\dagger$")
        return f"% {self.title}. {self.note}\n{text}\n"

    def html(self) -> str:
        """A `table`; everything is escaped."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in self.rows
        )
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"

    def csv(self) -> str:
        """Comma-separated, one header line."""
        return self.frame.to_csv(index=False)


def number(value: float | None, digits: int = 3) -> str:
    """Round to significant digits; a dash stands for an unknown value."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def spread(point: Any, name: str, scale: float = 1.0, digits: int = 3) -> str:
    """'median [least, most]' of a measure of a point; the median alone if there is one repetition."""
    middle = number(point[name] * scale, digits)
    if point["repetitions"] < 2 or middle == "–":
        return middle
    return f"{middle} [{number(point[f'{name}_min'] * scale, digits)}, {number(point[f'{name}_max'] * scale, digits)}]"


SPREAD_NOTE = "Median [least, most] over repetitions."


def make_tables(study: "Study") -> list[Table]:
    """All tables that the study has something for; `problems_table` is apart."""
    tables = [_scaling(study), _cost(study), _breakdown(study), _bytes(study)]
    if study.baseline is not None:
        tables.append(_against(study))
    return [*tables, _runs(study)]


def problems_table(problems: Sequence[tuple[str, str]]) -> Table:
    """Return the table of the runs left out. problems: [(name, reason)]."""
    rows = [list(problem) for problem in problems]
    frame = pd.DataFrame(rows, columns=["run", "reason"])
    return Table("problems", "Runs that are missing, broken or left out", ["run", "reason"], rows, frame)


def _rounded(name: str, scale: float = 1.0) -> Callable[[Any], str]:
    """The function that writes a measure of a point."""
    return lambda point: number(scale * point[name])


def _spread_of(name: str, scale: float = 1.0) -> Callable[[Any], str]:
    """The function that writes a measure of a point with its spread."""
    return lambda point: spread(point, name, scale)


def _points(study: "Study", columns: Sequence[Callable[[Any], str]]) -> list[list[str]]:
    """[(label, ranks, cells …)] for every point; columns: functions of a point."""
    return [
        [point["label"], str(point["ranks"]), *[column(point) for column in columns]]
        for label in study.labels
        for _, point in study.curve(label).iterrows()
    ]


def _scaling(study: "Study") -> Table:
    head, columns = (
        ["curve", "ranks", "runs", "epoch (s)"],
        [
            lambda p: str(p["repetitions"]),
            lambda p: spread(p, "epoch_seconds") + (_mark(p) if study.mode == "none" else ""),
        ],
    )
    if study.mode != "none":
        head += ["speed-up", "efficiency"]
        columns += [lambda p: number(p["speedup"]), _efficiency]
    head += ["training memory (MiB/rank)", "peak memory (MiB/rank)", "sent per epoch (MiB)", "best val", "test there"]
    columns += [
        lambda p: spread(p, "growth_bytes", 1 / MIB),
        lambda p: spread(p, "peak_rss_bytes", 1 / MIB),
        lambda p: spread(p, "bytes_epoch", 1 / MIB),
        lambda p: spread(p, "best_val", 1, 4),
        lambda p: spread(p, "test_at_best_val", 1, 4),
    ]
    title = {"strong": "Strong scaling", "weak": "Weak scaling", "none": "Results"}[study.mode]
    note = SPREAD_NOTE + " An epoch takes as long as its slowest rank, and memory is that of the largest rank."
    if study.mode != "none":
        note += " Speed-up and efficiency are relative to the fewest ranks of the curve."
    if study.mode == "weak":
        note += " Speed-up is scaled: ranks × time on the fewest / time."
    if study.mode != "none" and study.points["speedup"].isna().any():
        note += " A curve with one number of ranks has none."
    note = " ".join([note, *remarks(study), *_without_validation(study)])
    return Table("scaling", title, head, _points(study, columns), study.points, note)


def _efficiency(point: Any) -> str:
    return "–" if math.isnan(point["efficiency"]) else f"{100 * point['efficiency']:.0f} %{_mark(point)}"


def _mark(point: Any) -> str:
    """The sign of a point whose ranks had fewer cores than threads."""
    return f" {SHARED}" if point["threads_per_core_max"] > 1 else ""


def _without_validation(study: "Study") -> list[str]:
    """Return [the meaning of the dashes] if runs have no best epoch."""
    count = int(study.table["best_val"].isna().sum())
    if not count:
        return []
    return [
        f"–: without a validation metric no epoch is the best ({count} of {len(study.runs)} runs); the table of runs "
        "has the test metric at the end."
    ]


def _cost(study: "Study") -> Table:
    """Return the cost of a whole run for its accuracy; an epoch differs between schedules."""
    base = None if study.baseline is None else study.curve(study.baseline).set_index("ranks")["bytes_rows_total"]

    def fewer(point: Any) -> float:
        assert base is not None
        known = point["ranks"] in base.index and point["bytes_rows_total"] > 0
        return base[point["ranks"]] / point["bytes_rows_total"] if known else math.nan

    head = ["curve", "ranks", "runs", "best val", "test there", "rows sent (MiB)"]
    columns = [
        lambda p: str(p["repetitions"]),
        lambda p: spread(p, "best_val", 1, 4),
        lambda p: spread(p, "test_at_best_val", 1, 4),
        lambda p: spread(p, "bytes_rows_total", 1 / MIB),
    ]
    if base is not None:
        head.append(f"times fewer than {study.baseline}")
        columns.append(lambda p: number(fewer(p)))
    head += ["with parameters (MiB)", "training (s)"]
    columns += [lambda p: spread(p, "bytes_total", 1 / MIB), lambda p: spread(p, "seconds_total")]
    names = ("best_val", "test_at_best_val", "bytes_rows_total", "bytes_total", "seconds_total")
    frame = study.points[
        ["label", "ranks", "repetitions", *[f"{n}{end}" for n in names for end in ("", "_min", "_max")]]
    ]
    note = f"{SPREAD_NOTE} Of the whole run, all ranks, without evaluation: rows of features, hidden states and "
    note += "gradients, then these and the parameters or their gradients; time on the slowest rank."
    return Table("cost", "What the accuracy cost", head, _points(study, columns), frame, note)


def _breakdown(study: "Study") -> Table:
    columns = [_rounded(f"seconds_{part}", 1e3) for part in PARTS]
    frame = study.points[["label", "ranks", "repetitions", *[f"seconds_{part}" for part in PARTS]]]
    return Table(
        "breakdown",
        "Where an epoch's time goes (ms)",
        ["curve", "ranks", *PARTS.values()],
        _points(study, columns),
        frame,
        "Mean over ranks, median over epochs and repetitions.",
    )


def _bytes(study: "Study") -> Table:
    kinds = {
        "bytes_halo_forward": "halo forward",
        "bytes_halo_backward": "halo backward",
        "bytes_allreduce": "all-reduce",
        "bytes_evaluation": "evaluation",
    }
    imbalances = {"imbalance_nodes": "nodes", "imbalance_edges": "edges", "imbalance_halo": "halo rows"}
    columns = [_spread_of(kind, 1 / MIB) for kind in kinds]
    columns.append(_spread_of("halo_rows_per_node"))
    columns += [_rounded(what) for what in imbalances]
    frame = study.points[["label", "ranks", "repetitions", *kinds, "bytes_total", "halo_rows_per_node", *imbalances]]
    return Table(
        "bytes",
        "What is sent in an epoch, by all ranks (MiB), and how even the ranks are",
        [
            "curve",
            "ranks",
            *kinds.values(),
            "halo rows per node",
            *[f"{name}, max/mean" for name in imbalances.values()],
        ],
        _points(study, columns),
        frame,
        f"{SPREAD_NOTE} Bytes are those of the last epoch, counted where they are handed to MPI.",
    )


def _against(study: "Study") -> Table:
    """Ratios to the baseline at the same number of ranks."""
    assert study.baseline is not None
    names = {"epoch_seconds": "epoch time", "growth_bytes": "training memory", "bytes_epoch": "bytes sent"}
    base = study.curve(study.baseline).set_index("ranks")
    rows = []
    for label in study.labels:
        for _, point in study.curve(label).iterrows():
            if label != study.baseline and point["ranks"] in base.index:
                other = base.loc[point["ranks"]]
                ratios = {name: point[name] / other[name] if other[name] else math.nan for name in names}
                gain = point["test_at_best_val"] - other["test_at_best_val"]
                rows.append({"label": label, "ranks": point["ranks"], **ratios, "test_difference": gain})
    frame = pd.DataFrame(rows, columns=["label", "ranks", *names, "test_difference"])
    shown = [
        [
            row["label"],
            str(row["ranks"]),
            *["–" if math.isnan(row[n]) else f"{number(row[n])} {TIMES}" for n in names],
            "–" if math.isnan(row["test_difference"]) else f"{row['test_difference']:+.4f}",
        ]
        for row in rows
    ]
    head = ["curve", "ranks", *names.values(), "test metric, difference"]
    return Table("baseline", f"Against the baseline {study.baseline}", head, shown, frame, "Ratios of medians.")


def _runs(study: "Study") -> Table:
    rows = [
        [
            row["run"],
            row["label"],
            f"{row['ranks']} {TIMES} {row['threads']}",
            str(row["seed"]),
            str(row["epochs"]),
            f"{number(row['epoch_seconds'])} [{number(row['epoch_seconds_least'])}, "
            f"{number(row['epoch_seconds_most'])}]",
            number(row["growth_bytes"] / MIB),
            number(row["final_loss"], 4),
            number(row["best_val"], 4),
            number(row["test_at_best_val"], 4),
            number(row["test_at_end"], 4),
        ]
        for _, row in study.table.iterrows()
    ]
    head = [
        "run",
        "curve",
        f"ranks {TIMES} threads",
        "seed",
        "epochs",
        "epoch (s)",
        "training memory (MiB/rank)",
        "final loss",
        "best val",
        "test there",
        "test at the end",
    ]
    return Table("runs", "All runs", head, rows, study.table, "Epoch: median [least, most] over the epochs of the run.")
