"""Run directories on disk: which of them can be trusted, and the numbers of each.

A report must never be silently built on half a run. So a directory is either a `Run`, complete and consistent (summary,
one record per epoch, one record per rank), or `Broken`, with a reason that the report shows.

The numbers that a report compares have their unit in their name. Times are medians over epochs of the slowest rank's
time. `seconds_*` are parts of an epoch in the mean over ranks, so that they add up. `seconds_imbalance` is the slowest
rank's time above that mean.
"""

import itertools
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 2**20
#: The traffic of training: rows of nodes, and gradients or parameters of the model.
ROWS, GRADIENTS = ("halo_forward", "halo_backward", "input"), ("allreduce", "average")
METRICS = ("best_val", "test_at_best_val", "test_at_end")
PARTS = {
    "forward": "forward, computing",
    "forward_wait": "forward, waiting",
    "backward": "backward, computing",
    "backward_wait": "backward, waiting",
    "reduction": "gradient reduction",
    "step": "optimizer step",
    "imbalance": "slowest rank, extra",
}


def measure(run: "Run") -> dict[str, float]:
    """{name: number} of a Run; NaN where it was not measured."""
    summary, quality = run.summary, run.summary["partition"]
    seconds, edges = summary["epoch_seconds"], [rank["edges"] for rank in run.ranks]
    parts = [parts_of_epoch(record["seconds"]) for record in run.records]
    return {
        "epoch_seconds": seconds["median"],
        "epoch_seconds_least": seconds["min"],
        "epoch_seconds_most": seconds["max"],
        **{f"seconds_{part}": statistics.median(epoch[part] for epoch in parts) for part in PARTS},
        "seconds_total": cumulative_seconds(run)[-1],
        "growth_bytes": _number(summary["training_growth_bytes"]["max"]),
        "peak_rss_bytes": _number(summary["peak_rss_bytes"]["max"]),
        "rows_bytes_epoch": _bytes(run, run.records[-1], ROWS),
        "gradients_bytes_epoch": _bytes(run, run.records[-1], GRADIENTS),
        "bytes_total": cumulative_bytes(run)[-1],
        "halo_rows_per_node": _number(quality.get("halo_rows_per_node")),
        "imbalance_edges": max(edges) / statistics.fmean(edges) if any(edges) else math.nan,
        "bound_share": (summary.get("bound") or {"seconds": math.nan})["seconds"] / seconds["median"],
        **{name: _number(summary[name]) for name in ("final_loss", "best_val", "test_at_best_val")},
        "test_at_end": _number(run.records[-1].get("test")),
    }


def cumulative_bytes(run: "Run") -> list[float]:
    """Bytes that training has sent on all ranks by the end of each epoch."""
    return list(itertools.accumulate(_bytes(run, record, (*ROWS, *GRADIENTS)) for record in run.records))


def cumulative_seconds(run: "Run") -> list[float]:
    """Seconds that training has taken on the slowest rank by the end of each epoch; evaluation is not counted."""
    return list(itertools.accumulate(record["seconds"]["epoch"]["max"] for record in run.records))


def parts_of_epoch(seconds: dict[str, Any]) -> dict[str, float]:
    """{part: seconds} of one epoch, in the mean over ranks, from its record's `seconds`."""
    mean = {name: value["mean"] for name, value in seconds.items()}
    forward_wait = mean.get("halo_forward_wait", 0.0) + mean.get("input_wait", 0.0)
    backward_wait = mean.get("halo_backward_wait", 0.0)
    return {
        "forward": mean["forward"] - forward_wait,
        "forward_wait": forward_wait,
        "backward": mean["backward"] - backward_wait,
        "backward_wait": backward_wait,
        "reduction": mean["reduction"],
        "step": mean["step"],
        "imbalance": seconds["epoch"]["max"] - mean["epoch"],
    }


def _bytes(run: "Run", record: dict[str, Any], kinds: Sequence[str]) -> int:
    """Bytes of these kinds that all ranks sent in an epoch. One rank passes reductions to MPI, but sends nothing."""
    if run.summary["ranks"] == 1:
        return 0
    return sum(record["bytes"].get(kind, {"sum": 0})["sum"] for kind in kinds)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def named(summary: Mapping[str, Any]) -> str:
    """The name of the metric of a run, with its direction where it is an error. Earlier versions had no such metric."""
    error = summary.get("better", "higher") == "lower"
    return f"{summary['metric']}{' (lower is better)' * error}"


def short_graph(run: "Run") -> str:
    """The name of the graph of a run, for headings and legends."""
    return run.summary["graph"].rsplit("/", 1)[-1].removesuffix(".h5")


MARKS = ("config.toml", "metrics.jsonl", "summary.json")  # any of these makes a directory a run directory
FOUND_BY = MARKS[1:]  # below a folder: a config.toml alone may be anything's
REQUIRED = (
    "ranks threads_per_rank schedule model parameters epochs final_loss metric best_val best_epoch test_at_best_val "
    "epoch_seconds peak_rss_bytes training_growth_bytes partition graph graph_uuid seed versions hosts command config"
).split()
PER_EPOCH = ("epoch", "loss", "seconds", "bytes")
RANKS = "ranks.jsonl"  # a record for each rank
PER_RANK = ("rank", "host", "nodes", "edges", "halo_rows", "peak_rss_bytes", "training_growth_bytes")


@dataclass(frozen=True)
class Run:
    """A complete run.

    Attributes:
        name: short and unique in the report.
        summary, records, ranks: contents of its JSON files.
    """

    path: Path
    name: str
    summary: dict[str, Any]
    records: list[dict[str, Any]]
    ranks: list[dict[str, Any]]

    @property
    def config(self) -> dict[str, Any]:
        """Return {key: value} of the resolved configuration, with the sections flattened; no key occurs in two.

        The key `folder` is the name of the parent folder of the run directory, by which studies distinguish variants.
        """
        values = {key: value for section in self.summary["config"].values() for key, value in section.items()}
        return {**values, "folder": self.path.parent.name}


@dataclass(frozen=True)
class Broken:
    """A directory that cannot be used. reason: one line. asked: whether it was named, or else found below a folder that
    was.
    """

    path: Path
    name: str
    reason: str
    asked: bool = True


class Unusable(Exception):
    """Why a directory cannot be used."""


def read_runs(paths: Iterable[str | Path]) -> tuple[list[Run], list[Broken]]:
    """(list of Run, list of Broken) of run directories, or of directories that hold run directories at any depth."""
    asked = {Path(path).resolve() for path in paths}
    found = list(dict.fromkeys(run.resolve() for path in paths for run in _expand(Path(path))))
    base = Path(os.path.commonpath([path.parent for path in found])) if found else Path()
    runs, broken = [], []
    for path in found:
        name = str(path.relative_to(base))
        try:
            runs.append(_checked(Run(path, name, *_read(path))))
        except Unusable as problem:
            broken.append(Broken(path, name, str(problem), path in asked))
    return runs, broken


def _checked(run: Run) -> Run:
    """The run, if all that reports measure can be had from its files."""
    try:
        measure(run)
        if not run.config.keys() >= {"model", "seed"}:
            raise ValueError("config lacks the model")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise Unusable(
            f"its files are not what a run leaves: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    return run


def _expand(path: Path) -> list[Path]:
    """The run directories at or below a path; the path itself if there are none, so that it is reported."""
    if not path.is_dir() or _is_run(path):
        return [path]
    below = sorted(folder for folder, _, files in os.walk(path) if any(mark in files for mark in FOUND_BY))
    return [Path(folder) for folder in below] or [path]


def _is_run(path: Path) -> bool:
    return any((path / mark).exists() for mark in MARKS)


def _read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    if not path.is_dir():
        raise Unusable("no such directory" if not path.exists() else "not a directory")
    if not _is_run(path):
        raise Unusable(f"not a run directory: none of {', '.join(MARKS)} is there")
    records = read_records(path)
    if not (path / "summary.json").exists():
        raise Unusable(f"the run has not finished: {len(records)} epochs are recorded, and summary.json is missing")
    summary = read_summary(path)
    if len(records) != summary["epochs"]:
        raise Unusable(
            f"summary.json tells of {summary['epochs']} epochs, metrics.jsonl of {len(records)}: records were lost, or "
            "the run was continued and has not finished"
        )
    if not records:
        raise Unusable("no epoch was run")
    if not isinstance(summary["ranks"], int) or not isinstance(summary["config"], dict):
        raise Unusable("summary.json is not what a run leaves: ranks is no number, or config no table")
    return summary, records, read_rank_records(path, summary["ranks"])


def read_rank_records(path: str | Path, ranks: int) -> list[dict[str, Any]]:
    """Return the records of all ranks of a run directory, by rank. Raises Unusable."""
    records = _objects(Path(path) / RANKS, PER_RANK)
    if len(records) != ranks:
        raise Unusable(f"summary.json tells of {ranks} ranks, {RANKS} of {len(records)}")
    return records


def read_summary(path: Path) -> dict[str, Any]:
    """Return the content of a run directory's summary.json. Raises Unusable."""
    return _object(path / "summary.json", _text(path / "summary.json"), REQUIRED)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a run directory's metrics.jsonl, one per epoch. Raises Unusable."""
    return _objects(path / "metrics.jsonl", PER_EPOCH)


def _objects(file: Path, required: Sequence[str]) -> list[dict[str, Any]]:
    """The JSON objects of a file, one in a line."""
    lines = enumerate(_text(file).splitlines(), 1)
    return [_object(file, line, required, f"line {number} of ") for number, line in lines]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"cannot read {file.name}: {getattr(error, 'strerror', None) or 'not text'}") from error


def _object(file: Path, text: str, required: Sequence[str], where: str = "") -> dict[str, Any]:
    """The JSON object of a text, with the keys that a report relies on."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unusable(f"{where}{file.name} is damaged: {error.msg} at character {error.pos}") from error
    missing = [key for key in required if not isinstance(value, dict) or key not in value]
    if missing:
        raise Unusable(f"{where}{file.name} lacks {missing[0]!r}: written by another version of the program?")
    return value
