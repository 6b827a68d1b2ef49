"""Runs as a study: curves of like runs over the number of ranks, medians and spread over repetitions, and speed-up.

Runs on one curve may differ in the number of ranks, the seed, and options that leave time and result alone. All other
differences name the curves. In a study of weak scaling the graph may differ as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hpcgnn.errors import ConfigError
from hpcgnn.report.read import METRICS, MIB, Run, measure, short_graph
from hpcgnn.report.style import MODELS, SCHEDULES

# Options that may differ between runs of one curve: names of files, and options of the section [run] but for these.
FREE = {"graph", "partition", "folder"}
RUN_MATTERS = {"threads", "precision", "metric", "profile_memory"}
# What a run decides by its ranks: it tells curves apart where runs of as many ranks differ.
BY_RANKS = {"intra_node"}


@dataclass(frozen=True)
class Study:
    """The content of a report.

    Attributes:
        scaling: 'strong' or 'weak'.
        runs: list of Run.
        table: one row per run: `run`, `label`, `ranks`, `threads`, `seed`, `epochs`, and the measures.
        points: one row per (label, ranks). It has `repetitions`, `seeds`, each measure's median, with its extremes as
            NAME_min and NAME_max, each metric's mean and deviation as NAME_mean and NAME_deviation, `speedup` and
            `efficiency`.
    """

    scaling: str
    runs: list[Run]
    table: pd.DataFrame
    points: pd.DataFrame

    @property
    def labels(self) -> list[str]:
        """Names of the curves, in the order of the runs."""
        return list(dict.fromkeys(self.table["label"]))

    def curve(self, label: str) -> pd.DataFrame:
        """The points of one label, by rising number of ranks."""
        return self.points[self.points["label"] == label].sort_values("ranks")

    def groups(self) -> dict[tuple[str, int], list[Run]]:
        """{(label, ranks): [runs]}, in the order of the points."""
        found: dict[tuple[str, int], list[Run]] = {(p["label"], p["ranks"]): [] for _, p in self.points.iterrows()}
        for run, label in zip(self.runs, self.table["label"], strict=True):
            found[label, run.summary["ranks"]].append(run)
        return found


def build_study(runs: list[Run], label_by: Sequence[str] = (), scaling: str = "strong") -> Study:
    """A Study of a list of Run. label_by: configuration keys whose values name the curves, also `graph` and `folder`;
    by default all that differ.

    Raises ConfigError for an unknown key, and where unlike runs would share a curve.
    """
    differing = [key for key in _matters(runs, scaling) if _differs(runs, key)]
    for key in label_by:
        absent = [run.name for run in runs if key not in run.config]
        if absent:
            raise ConfigError(
                f"--label-by {key}: run {absent[0]} has no such configuration key; expected one of: "
                f"{', '.join(sorted(runs[0].config))}"
            )
    keys = list(label_by) or _telling_apart(runs, differing)
    runs = _in_order(runs, keys)
    whole = f"{_spoken(runs[0], 'model')} ({_spoken(runs[0], 'schedule')})"  # the one curve, if nothing names several
    short = _count(runs, ["graph"]) == len({short_graph(run) for run in runs})
    labels = [", ".join(_spoken(run, key, short) for key in keys) or whole for run in runs]
    for label in dict.fromkeys(labels):
        group = [run for run, own in zip(runs, labels, strict=True) if own == label]
        for key in differing:
            if _count(group, [key]) > 1:
                values = ", ".join(sorted({_value(run, key) for run in group}))
                raise ConfigError(
                    f"the runs of curve {label!r} are of different configurations: {key} is {values}; add {key} to "
                    "--label-by, or leave some runs out"
                )
    table = pd.DataFrame(
        {
            "run": run.name,
            "label": label,
            "ranks": run.summary["ranks"],
            "threads": run.summary["threads_per_rank"],
            "seed": run.summary["seed"],
            "epochs": run.summary["epochs"],
            **measure(run),
        }
        for run, label in zip(runs, labels, strict=True)
    )
    return Study(scaling, runs, table, _points(table, scaling))


def _matters(runs: list[Run], scaling: str) -> list[str]:
    """The configuration keys that decide time or result; graph, model and schedule first."""
    free = FREE | {key for run in runs for key in run.summary["config"]["run"]} - RUN_MATTERS
    first = ["graph"] * (scaling == "strong") + ["model", "schedule"]
    return list(dict.fromkeys([*first, *(key for run in runs for key in run.config if key not in free)]))


def spoken_graph(run: Run) -> str:
    """The name of the graph file of a run, and the mark by which it differs from another of this name."""
    return f"{run.summary['graph'].rsplit('/', 1)[-1]} ({run.summary['graph_uuid'][:8]})"


def title(study: Study) -> str:
    """A heading that fits the study: models or curves, graphs, and ranks."""
    ranks, several = sorted(set(study.points["ranks"])), len(study.labels)
    graphs = list(dict.fromkeys(short_graph(run) for run in study.runs))
    what = " and ".join([", ".join(study.labels[:-1])] * (several > 1) + study.labels[-1:])
    where = graphs[0] if len(graphs) == 1 else f"{len(graphs)} graphs"
    scales = f"{study.scaling.capitalize()} scaling of " if any(study.points["speedup"].notna()) else ""
    span = f"{ranks[0]} to {ranks[-1]} ranks" if len(ranks) > 1 else f"{ranks[0]} rank{'s' * (ranks[0] > 1)}"
    return f"{scales}{what if several < 5 else f'{several} curves'} on {where}, {span}"


def _in_order(runs: list[Run], keys: Sequence[str]) -> list[Run]:
    """The runs by the values of keys: models in the order of all figures, other values as they come."""
    found: dict[str, list[str]] = {
        key: [*MODELS] * (key == "model") + list(dict.fromkeys(_value(run, key) for run in runs)) for key in keys
    }
    return sorted(runs, key=lambda run: [found[key].index(_value(run, key)) for key in keys])


def _value(run: Run, key: str) -> str:
    return spoken_graph(run) if key == "graph" else str(run.config.get(key))


def _spoken(run: Run, key: str, short: bool = True) -> str:
    """Return the value of a configuration key in the words of labels. short: whether the name of a graph is enough."""
    value = run.config.get(key)
    if key == "graph":
        return short_graph(run) if short else _value(run, key)
    if key in ("model", "schedule"):
        return {**MODELS, **SCHEDULES}.get(str(value), str(value))
    said = f"{value:g}" if isinstance(value, float) else str(value)
    return said if key == "folder" else f"{key.replace('_', ' ')} {said}"


def _count(runs: list[Run], keys: Sequence[str]) -> int:
    """How many different values the runs have for these keys together."""
    return len({tuple(_value(run, key) for key in keys) for run in runs})


def _differs(runs: list[Run], key: str) -> bool:
    """Whether values of a key tell runs apart."""
    pairs = {(run.summary["ranks"] if key in BY_RANKS else 0, _value(run, key)) for run in runs}
    return len(pairs) > len({ranks for ranks, _ in pairs})


def _telling_apart(runs: list[Run], differing: list[str]) -> list[str]:
    """Of differing keys those that tell unlike runs apart: graph, model and schedule, and of the others the fewest."""
    keys: list[str] = [key for key in ("graph", "model", "schedule") if key in differing]
    for key in differing:
        if _count(runs, [*keys, key]) > _count(runs, keys):
            keys.append(key)
    return keys


def _points(table: pd.DataFrame, scaling: str) -> pd.DataFrame:
    measures = list(table.columns[table.columns.get_loc("epochs") + 1 :])
    grouped = table.groupby(["label", "ranks"], sort=False)
    points = grouped[measures].median()
    for name, frame in (("min", grouped[measures].min()), ("max", grouped[measures].max())):
        points = points.join(frame.add_suffix(f"_{name}"))
    metrics = grouped[list(METRICS)]
    points = points.join(metrics.mean().add_suffix("_mean")).join(metrics.std().add_suffix("_deviation"))
    points.insert(0, "repetitions", grouped.size())
    points.insert(1, "seeds", grouped["seed"].nunique())
    places = {label: place for place, label in enumerate(dict.fromkeys(table["label"]))}
    points = points.reset_index()
    points = points.iloc[np.lexsort((points["ranks"], points["label"].map(places)))].reset_index(drop=True)
    # Relative to the fewest ranks of the curve, which count as perfect; weak scaling has as much work for each rank.
    first = points.loc[points.groupby("label")["ranks"].idxmin()].set_index("label")
    times, ranks = points["label"].map(first["epoch_seconds"]), points["label"].map(first["ranks"])
    ideal = times if scaling == "weak" else times * ranks / points["ranks"]
    points["efficiency"] = ideal / points["epoch_seconds"]
    points["speedup"] = points["efficiency"] * points["ranks"]
    alone = points.groupby("label")["ranks"].transform("size") == 1
    points.loc[alone, ["speedup", "efficiency"]] = math.nan  # a single number of ranks has no scaling
    return points


def number(value: float, digits: int = 3) -> str:
    """Round to significant digits; a dash stands for an unknown value."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def study_table(study: Study) -> pd.DataFrame:
    """The points as text for people."""
    columns = {
        "curve": lambda p: p["label"],
        "ranks": lambda p: str(p["ranks"]),
        "runs": lambda p: str(p["repetitions"]),
        "epoch (s)": lambda p: _spread(p, "epoch_seconds"),
        "share of the bound (%)": lambda p: _spread(p, "bound_share", 100),
        "speed-up": lambda p: number(p["speedup"]),
        "efficiency (%)": lambda p: number(100 * p["efficiency"]),
        "training memory (MiB/rank)": lambda p: _spread(p, "growth_bytes", 1 / MIB),
        "peak memory (MiB/rank)": lambda p: _spread(p, "peak_rss_bytes", 1 / MIB),
        "rows sent per epoch (MiB)": lambda p: _spread(p, "rows_bytes_epoch", 1 / MIB),
        "gradients sent per epoch (MiB)": lambda p: _spread(p, "gradients_bytes_epoch", 1 / MIB),
        "training (s)": lambda p: _spread(p, "seconds_total"),
        "best val": lambda p: _deviation(p, "best_val"),
        "test there": lambda p: _deviation(p, "test_at_best_val"),
        "test at the end": lambda p: _deviation(p, "test_at_end"),
    }
    points = [point for _, point in study.points.iterrows()]
    return _known(pd.DataFrame({head: [cell(point) for point in points] for head, cell in columns.items()}))


def _known(table: pd.DataFrame) -> pd.DataFrame:
    """A table for people without its unknown columns."""
    return table.loc[:, (table != "–").any()]


def _spread(point: pd.Series, name: str, scale: float = 1.0) -> str:
    """'median [least, most]' of a measure of a point; the median alone if there is one repetition."""
    middle = number(point[name] * scale)
    if point["repetitions"] < 2 or middle == "–":
        return middle
    least, most = (number(point[f"{name}_{end}"] * scale) for end in ("min", "max"))
    return middle if least == most else f"{middle} [{least}, {most}]"


def _deviation(point: pd.Series, name: str) -> str:
    mean, deviation = point[f"{name}_mean"], point[f"{name}_deviation"]
    return number(mean, 4) + (f" ± {deviation:.4f}" if not math.isnan(deviation) else "")


def notes(study: Study) -> list[str]:
    """Lines to read the table of the study by."""
    lines = [
        "Times and memory: median [least, most] over repetitions. Metrics: mean ± standard deviation (divided by runs "
        "- 1). An epoch takes as long as its slowest rank, and memory is that of the largest rank. Speed-up and "
        f"efficiency ({study.scaling} scaling) are relative to the fewest ranks of the curve."
    ]
    if (study.points["seeds"] < study.points["repetitions"]).any():
        lines.append("Some runs have one seed: they are the same run again, and say nothing about the deviation.")
    if bounds := [bound for run in study.runs if (bound := run.summary.get("bound"))]:
        names = "multiplications_per_second", "moved_bytes_per_second"
        rates = [sorted(each[name] / 1e9 for each in bounds) for name in names]
        products, moved = (" to ".join(dict.fromkeys(map(number, (each[0], each[-1])))) for each in rates)
        lines.append(
            "Share of the bound: the least seconds of an epoch on the busiest rank, of the seconds that it took. That "
            f"rank multiplied {products} billion numbers a second, and moved {moved} GB/s, measured by each run."
        )
    return lines


def runs_table(study: Study) -> pd.DataFrame:
    """The runs as text for people."""
    frame = study.table.rename(columns={"label": "curve", "epoch_seconds": "epoch (s)"})
    frame["training memory (MiB/rank)"] = frame["growth_bytes"] / MIB
    heads = ["run", "curve", "ranks", "threads", "seed", "epochs", "epoch (s)", "training memory (MiB/rank)"]
    shown = frame[[*heads, "final_loss", *METRICS]]
    return _known(shown.map(lambda value: number(value, 4) if isinstance(value, float) else str(value)))
