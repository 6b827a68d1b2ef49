"""`hpcgnn.read_run`: a run as a table of pandas, with its options and its summary."""

import json
import sys

import pytest

import hpcgnn
from hpcgnn.errors import ConfigError, RunDirError

from .conftest import EPOCHS, summary


def test_a_row_for_each_epoch(study_dir):
    run = hpcgnn.read_run(study_dir / "p2-a")
    records = [json.loads(line) for line in (study_dir / "p2-a" / "metrics.jsonl").read_text().splitlines()]
    assert list(run.index) == list(range(1, EPOCHS + 1)) and run.index.name == "epoch"
    assert list(run["loss"]) == [record["loss"] for record in records]
    assert list(run["val"]) == [record["val"] for record in records]
    assert list(run["seconds.epoch.max"]) == [record["seconds"]["epoch"]["max"] for record in records]
    assert run.attrs["summary"]["best_val"] == summary(study_dir / "p2-a")["best_val"]
    assert run.attrs["config"]["model"] == "sage" and run.attrs["config"]["epochs"] == EPOCHS


def test_a_run_that_has_not_finished_can_be_read(copied):
    path = copied("p1-a")
    (path / "summary.json").unlink()
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join(lines[:2]) + "\n")
    run = hpcgnn.read_run(path)
    assert list(run.index) == [1, 2] and run.attrs["summary"] is None
    (path / "metrics.jsonl").unlink()
    assert len(hpcgnn.read_run(path)) == 0


def test_what_cannot_be_read_is_said(copied, tmp_path, monkeypatch):
    with pytest.raises(RunDirError, match="is not the directory of a run"):
        hpcgnn.read_run(tmp_path)
    path = copied("p1-a")
    (path / "metrics.jsonl").write_text('{"epoch": 1, "lo')
    with pytest.raises(RunDirError, match="metrics.jsonl is damaged"):
        hpcgnn.read_run(path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"hpcgnn\[plot\]"):
        hpcgnn.read_run(path)
