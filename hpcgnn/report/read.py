"""Run directories on disk: which of them can be trusted, and why others cannot.

A report must never be silently built on half a run. So a directory is either a `Run`, complete and consistent (summary,
one record per epoch, one record per rank), or `Broken`, with a reason that the report shows.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcgnn.report.measures import measure

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
    """Return the records of all ranks of a run directory, by rank. Raises Unusable.

    Earlier versions wrote a file for each rank.
    """
    file, before = Path(path) / RANKS, Path(path) / "ranks"
    if not file.exists() and before.is_dir():
        files = [before / f"rank-{rank:05d}.json" for rank in range(ranks)]
        return [_object(file, _text(file), PER_RANK) for file in files]
    records = [_object(file, line, PER_RANK, f"line {n} of ") for n, line in enumerate(_text(file).splitlines(), 1)]
    if len(records) != ranks:
        raise Unusable(f"summary.json tells of {ranks} ranks, {RANKS} of {len(records)}")
    return records


def read_summary(path: Path) -> dict[str, Any]:
    """Return the content of a run directory's summary.json. Raises Unusable."""
    return _object(path / "summary.json", _text(path / "summary.json"), REQUIRED)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a run directory's metrics.jsonl, one per epoch. Raises Unusable."""
    file = path / "metrics.jsonl"
    lines = enumerate(_text(file).splitlines(), 1)
    return [_object(file, line, PER_EPOCH, f"line {number} of ") for number, line in lines]


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
