"""Runs as a study: curves of like runs over the number of ranks, medians over repetitions, and speed-up.

A curve that silently joins unlike runs is worse than none. Runs on one curve may differ in the number of ranks, the
seed, and options that leave the result alone. All other differences either label the curves, or need a request
(`--mix`).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from hpcgnn.errors import ConfigError
from hpcgnn.report.measures import measure
from hpcgnn.report.read import Run
from hpcgnn.report.remarks import ONE_SHOT_MIB

# Options that may differ between runs of one curve: names of files, and options of the section [run] that decide
# neither time nor result.
FREE = {"graph", "partition", "auto_partition", "folder"}
RUN_MATTERS = {"threads", "precision", "matmul", "metric", "profile_memory"}
LIKE = {"precision", "self_loops"}  # part of what is meant by "the model", besides the section of that name
LIKE_SHARES = 1.5  # runs count as weak scaling by default if nodes per rank differ by at most this factor
MODES = ("auto", "strong", "weak", "none")


class UnlikeError(ConfigError):
    """Runs that cannot be compared would share a curve or a figure."""


@dataclass(frozen=True)
class Study:
    """The content of a report.

    Attributes:
        mode: 'strong', 'weak' or 'none'.
        labels: names of the curves, in order.
        runs: list of Run.
        table: one row per run: `run`, `label`, `ranks`, `seed`, `graph`, and the measures.
        points: one row per (label, ranks). It has `repetitions`, and each measure's median, with its extremes as
            NAME_min and NAME_max. Scaling studies add `speedup` and `efficiency`.
        baseline: a label, or None.
    """

    mode: str
    labels: list[str]
    runs: list[Run]
    table: pd.DataFrame
    points: pd.DataFrame
    baseline: str | None

    def curve(self, label: str) -> pd.DataFrame:
        """The points of one label, by rising number of ranks."""
        return self.points[self.points["label"] == label].sort_values("ranks")

    def label_of(self, run: Run) -> str:
        """The curve that a run belongs to."""
        return self.table.set_index("run").loc[run.name, "label"]


def build_study(
    runs: list[Run], label_by: Sequence[str] = (), scaling: str = "auto", baseline: str | None = None, mix: bool = False
) -> Study:
    """A Study of a list of Run. label_by: configuration keys whose values name the curves (also `graph` and
    `folder`).

    Raises UnlikeError where unlike runs would share a curve, ConfigError for a key or label that does not exist.
    """
    keys = _label_keys(runs, label_by, scaling)
    whole = f"{runs[0].summary['model']}, {runs[0].summary['schedule']}"  # the one curve, where nothing names several
    labels = [", ".join(_spoken(run, key) for key in keys) or whole for run in runs]
    groups = {label: [run for run, own in zip(runs, labels, strict=True) if own == label] for label in labels}
    if not mix:
        for label, group in groups.items():
            _refuse_unlike(label, group)
    mode = scaling if scaling != "auto" else _detect(groups, mix)
    if not mix:
        for label, group in groups.items():
            _refuse_graphs(label, group, mode)
    if baseline is not None and baseline not in groups:
        raise ConfigError(f"--baseline {baseline!r} is no label; expected one of: {'; '.join(groups)}")
    table = pd.DataFrame(
        {
            "run": run.name,
            "label": label,
            "ranks": run.summary["ranks"],
            "threads": run.summary["threads_per_rank"],
            "seed": run.summary["seed"],
            "graph": run.summary["graph_uuid"],
            "epochs": run.summary["epochs"],
            **measure(run),
        }
        for run, label in zip(runs, labels, strict=True)
    )
    return Study(mode, list(groups), runs, table, _points(table, mode), baseline)


def _spoken(run: Run, key: str) -> str:
    """Return the value of a configuration key in the words of labels."""
    if key in ("schedule", "folder"):
        return run.config[key]
    if key == "halo_buffer":
        return "one-shot" if run.config[key] >= ONE_SHOT_MIB else f"cap {run.config[key]:g} MiB"
    return f"{key} {_shown(run, key)}"


def _shown(run: Run, key: str) -> str:
    value = run.config[key]
    return str(value).rsplit("/", 1)[-1] if key == "graph" else str(value)


def _label_keys(runs: list[Run], asked: Sequence[str], scaling: str) -> list[str]:
    """The keys that name the curves: those asked for, else whatever differs and is not the model or the graph."""
    for key in asked:
        absent = [run.name for run in runs if key not in run.config]
        if absent:
            known = ", ".join(sorted(runs[0].config))
            raise ConfigError(
                f"--label-by {key}: run {absent[0]} has no such configuration key; expected one of: {known}"
            )
    if asked:
        return list(asked)
    keys = [key for key in _differing(runs) if scaling == "none" or not _of_model(runs[0], key)]
    if scaling == "none" and len({run.summary["graph_uuid"] for run in runs}) > 1:
        keys.insert(0, "graph")
    return keys


def telling_apart(runs: list[Run]) -> list[str]:
    """Configuration keys that tell unlike runs apart: model and schedule wherever they differ, and of the others the
    fewest, in their order.
    """
    differing = _differing(runs)
    keys: list[str] = [key for key in ("model", "schedule") if key in differing]
    for key in differing:
        if _count(runs, [*keys, key]) > _count(runs, keys):
            keys.append(key)
    return keys


def _count(runs: list[Run], keys: Sequence[str]) -> int:
    return len({tuple(repr(run.config.get(key)) for key in keys) for run in runs})


def models_differ(runs: list[Run]) -> bool:
    """Whether the runs are not all of one model."""
    return any(_of_model(runs[0], key) for key in _differing(runs))


def setup(run: Run, runs: list[Run]) -> tuple[tuple[str, str], ...]:
    """Return the values that must be equal in two of `runs` on one curve, whatever their graphs."""
    return tuple((key, repr(run.config.get(key))) for key in _matters(runs))


def looks_weak(group: list[Run]) -> bool:
    """Whether like runs on several graphs are a weak scaling."""
    return _kind(group) == "weak"


def _matters(runs: list[Run]) -> list[str]:
    """The configuration keys that decide time or result."""
    free = FREE | {key for run in runs for key in run.summary["config"]["run"]} - RUN_MATTERS
    return list(dict.fromkeys(key for run in runs for key in run.config if key not in free))


def _differing(runs: list[Run]) -> list[str]:
    """Return the constrained configuration keys that differ between runs; the model's first."""
    keys = _matters(runs)
    differing = [key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1]
    return sorted(differing, key=lambda key: key not in runs[0].summary["config"]["model"])


def _of_model(run: Run, key: str) -> bool:
    return key in LIKE or key in run.summary["config"]["model"]


def _refuse_unlike(label: str, group: list[Run]) -> None:
    for key in _differing(group):
        values = ", ".join(sorted({str(run.config.get(key)) for run in group}))
        what = "models" if _of_model(group[0], key) else "configurations"
        raise UnlikeError(
            f"the runs of curve {label!r} are of different {what}: {key} is {values}; separate them with --label-by "
            f"{key}, leave some out, or join them with --mix"
        )


def _graphs_by_ranks(group: list[Run]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for run in group:
        found.setdefault(run.summary["ranks"], set()).add(run.summary["graph_uuid"])
    return found


def _kind(group: list[Run]) -> str:
    """Return the kind of scaling that one curve's graphs show: 'strong', 'weak', 'none' (one number of ranks), or
    'unclear'.
    """
    by_ranks = _graphs_by_ranks(group)
    graphs = set().union(*by_ranks.values())
    if len(by_ranks) == 1:
        return "none" if len(graphs) == 1 else "unclear"
    if len(graphs) == 1:
        return "strong"
    apart = len(graphs) == sum(map(len, by_ranks.values())) == len(by_ranks)
    return "weak" if apart and _grows_with_ranks(group) else "unclear"


def _grows_with_ranks(group: list[Run]) -> bool:
    """Whether graphs are such as weak scaling is measured on: one task, and about as many nodes for each rank."""
    nodes = [statistics.fmean(rank["nodes"] for rank in run.ranks) for run in group]
    return len({run.summary["parameters"] for run in group}) == 1 and max(nodes) <= LIKE_SHARES * min(nodes)


def _detect(groups: Mapping[str, list[Run]], mix: bool) -> str:
    kinds = {_kind(group) for group in groups.values()} - {"none"}
    if mix:
        kinds.discard("unclear")
    if len(kinds) > 1:
        raise UnlikeError(
            f"the runs are of different kinds of scaling: {', '.join(sorted(kinds))}; report them apart, or say which "
            "with --scaling strong, weak or none"
        )
    kind = kinds.pop() if kinds else "none"
    return "strong" if kind == "unclear" else kind  # which `_refuse_graphs` then refuses, with the names


def _refuse_graphs(label: str, group: list[Run], mode: str) -> None:
    by_ranks = _graphs_by_ranks(group)
    several = [graphs for graphs in by_ranks.values() if len(graphs) > 1]
    names = ", ".join(sorted({f"{_shown(run, 'graph')} ({run.summary['graph_uuid'][:8]})" for run in group}))
    count = len(set().union(*by_ranks.values()))
    if several or (mode == "strong" and count > 1):
        raise UnlikeError(
            f"the runs of curve {label!r} are of different graphs: {names}; separate them with --label-by graph, leave "
            "some out, or join them with --mix"
        )
    if mode == "weak" and count < len(by_ranks):
        raise UnlikeError(
            f"--scaling weak: expected a graph of its own for each number of ranks in curve {label!r}, got {names} for "
            f"{', '.join(map(str, sorted(by_ranks)))} ranks; ask for --scaling strong, or join them with --mix"
        )


def _points(table: pd.DataFrame, mode: str) -> pd.DataFrame:
    measures = [name for name in table.columns[table.columns.get_loc("epochs") + 1 :]]
    grouped = table.groupby(["label", "ranks"], sort=False)
    points = grouped[measures].median()
    for name, frame in (("min", grouped[measures].min()), ("max", grouped[measures].max())):
        points = points.join(frame.add_suffix(f"_{name}"))
    points.insert(0, "repetitions", grouped.size())
    points = points.reset_index().sort_values(["label", "ranks"], ignore_index=True)
    if mode == "none":
        return points
    first = points.loc[points.groupby("label")["ranks"].idxmin()].set_index("label")
    times, ranks = points["label"].map(first["epoch_seconds"]), points["label"].map(first["ranks"])
    gain, more = times / points["epoch_seconds"], points["ranks"] / ranks
    # Relative to the fewest ranks of the curve, which are counted as perfect; weak scaling does `more` times the work.
    points["speedup"] = gain * (ranks if mode == "strong" else points["ranks"])
    points["efficiency"] = gain / more if mode == "strong" else gain
    alone = points.groupby("label")["ranks"].transform("size") == 1
    points.loc[alone, ["speedup", "efficiency"]] = math.nan  # a single number of ranks has no scaling
    return points
