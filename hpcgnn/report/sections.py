"""A folder of mixed runs, cut into comparable studies: one for each graph and metric, with a curve for each model.

Runs that make one study (strong scaling, weak scaling, a comparison of schedules) stay together; others are cut.
Accuracies on two graphs, or under two metrics, share a figure only on request.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcgnn.errors import ConfigError
from hpcgnn.report.read import Run
from hpcgnn.report.study import Study, UnlikeError, build_study, looks_weak, models_differ, setup, telling_apart


@dataclass(frozen=True)
class Section:
    """A study among others.

    Attributes:
        title: its subject.
        folder: folder of its files, '' for the only study.
    """

    title: str
    folder: str
    study: Study


def make_sections(
    runs: list[Run], label_by: Sequence[str] = (), scaling: str = "auto", baseline: str | None = None, mix: bool = False
) -> tuple[list[Section], list[tuple[str, str]]]:
    """Cut runs into sections. Arguments as in `build_study`.

    Returns:
        (list of Section, list of (title, reason) of the runs left out).

    Raises:
        ConfigError: there is no section at all, or a key or label is unknown.
    """
    alike = len({run.summary["metric"] for run in runs}) == 1 and (scaling == "none" or not models_differ(runs))
    try:
        if alike or mix or label_by:
            return [Section("", "", build_study(runs, label_by, scaling, baseline, mix))], []
    except UnlikeError:
        if mix:
            raise
    parts = _comparable(runs)
    made, left_out, problems = [], [], []
    for title, part in parts.items():
        try:
            made.append((title, _study(part, label_by, scaling)))
        except UnlikeError as error:
            left_out.append((title, str(error)))
            problems.append(error)
    if not made:
        raise problems[0]
    labels = dict.fromkeys(label for _, study in made for label in study.labels)
    if baseline is not None and baseline not in labels:
        raise ConfigError(f"--baseline {baseline!r} is no label; expected one of: {'; '.join(labels)}")
    made = [(title, replace(study, baseline=baseline if baseline in study.labels else None)) for title, study in made]
    if len(made) == 1 and not left_out:
        return [Section("", "", made[0][1])], []
    return [
        Section(title, folder, study) for folder, (title, study) in zip(_folders(made), made, strict=True)
    ], left_out


def _study(runs: list[Run], label_by: Sequence[str], scaling: str) -> Study:
    """Return the study of one part's runs. By default, differences between models name curves as well."""
    return build_study(runs, label_by or (telling_apart(runs) if models_differ(runs) else ()), scaling)


def _comparable(runs: list[Run]) -> dict[str, list[Run]]:
    """{title: runs} of those on one graph with one metric. The graphs of a weak scaling are one."""
    alike: dict[tuple[Any, str], list[Run]] = {}
    for run in runs:
        alike.setdefault((setup(run, runs), run.summary["metric"]), []).append(run)
    family: dict[str, str] = {}
    for group in alike.values():
        if looks_weak(group):
            ids = sorted({run.summary["graph_uuid"] for run in group})
            first = next((family[one] for one in ids if one in family), ids[0])
            family.update(dict.fromkeys(ids, first))
    parts: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        uuid = run.summary["graph_uuid"]
        parts.setdefault((family.get(uuid, uuid), run.summary["metric"]), []).append(run)
    several = len({metric for _, metric in parts}) > 1
    return {_title(part, metric if several else ""): part for (_, metric), part in parts.items()}


def _title(part: list[Run], metric: str) -> str:
    graphs = dict.fromkeys(f"{Path(run.summary['graph']).name} ({run.summary['graph_uuid'][:8]})" for run in part)
    names = list(graphs) if len(graphs) < 4 else [*list(graphs)[:2], f"{len(graphs) - 2} more"]
    return f"Graph{'s' if len(graphs) > 1 else ''} {', '.join(names)}" + (f", {metric}" if metric else "")


def _folders(made: list[tuple[str, Study]]) -> list[str]:
    """Names that are fit for files, each once."""
    used = []
    for _, study in made:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(study.runs[0].summary["graph"]).stem)[:40].strip("-.") or "unnamed"
        name, number = f"graph-{stem}", 2
        while name in used:
            name, number = f"graph-{stem}-{number}", number + 1
        used.append(name)
    return used
