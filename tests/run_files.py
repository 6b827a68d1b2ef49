"""What tests read of a run's directory, whoever wrote it."""

import json
from pathlib import Path


def records(run_dir):
    """The records of metrics.jsonl, one of each epoch."""
    return [json.loads(line) for line in (Path(run_dir) / "metrics.jsonl").read_text().splitlines()]


def epochs_done(run_dir):
    """The number of these records while a job writes them, also before there is a file."""
    path = Path(run_dir) / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def losses(run_dir):
    return [record["loss"] for record in records(run_dir)]


def learned(run_dir):
    """The learned results without the measured ones: the losses and metrics of each epoch."""
    names = ("epoch", "loss", "lr", "train", "val", "test")
    return [{key: record[key] for key in names if key in record} for record in records(run_dir)]


def summary(run_dir):
    return json.loads((Path(run_dir) / "summary.json").read_text())


def log_of(run_dir):
    return (Path(run_dir) / "log.txt").read_text()
