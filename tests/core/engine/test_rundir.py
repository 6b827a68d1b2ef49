"""The run directory: one writer, and errors that are heard."""

import json
import logging
from pathlib import Path

import pytest

from hpcgnn.__main__ import registry_choices
from hpcgnn.config import make_config, read_toml
from hpcgnn.engine.rundir import RunDir
from hpcgnn.errors import RunDirError


def test_two_jobs_in_one_run_directory(tmp_path):
    """The second reports this and stops, whether it resumes or not, and the first notices nothing."""
    first = RunDir(tmp_path / "run", resume=False)
    first.append({"epoch": 1})
    first.settle()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for resume, words in ((True, "in use by another job"), (False, "is not empty")):
        with pytest.raises(RunDirError, match=words):
            RunDir(tmp_path / "run", resume)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    first.append({"epoch": 2})
    assert [record["epoch"] for record in first.records()] == [1, 2]
    first.begin(make_config({"graph": "-"}, registry_choices()), 2)
    first.close()
    RunDir(tmp_path / "run", resume=True).close()


def test_half_written_files_of_killed_writers_go(tmp_path):
    for folder in (".", "checkpoints/epoch-000002-ranks", "trace"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / ".name.0123.part").touch()
    RunDir(tmp_path, resume=True).close()
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("epochs, kept, lost", [(2, 2, False), (3, 3, False), (5, 3, True)])
def test_records_that_the_checkpoint_does_not_know_of_are_dropped(tmp_path, caplog, epochs, kept, lost):
    """And records after a damaged line are lost; a line reports this where the checkpoint knows of them."""
    config = make_config({"graph": "-"}, registry_choices())
    first = RunDir(tmp_path / "run", resume=False)
    first.begin(config, 0)
    for epoch in (1, 2, 3):
        first.append({"epoch": epoch, "loss": epoch / 2})
    first.close()
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "lo\n{"epoch": 5, "loss": 2.0}\n')
    again = RunDir(tmp_path / "run", resume=True)
    assert [record["epoch"] for record in again.records()] == [1, 2, 3]
    with caplog.at_level(logging.WARNING, "hpcgnn"):
        again.begin(config, epochs)
    said = f"metrics.jsonl has records of 3 of the {epochs} epochs done; the others were lost"
    assert [record.getMessage() for record in caplog.records] == [said] * lost
    again.append({"epoch": epochs + 1, "loss": 9.0})
    again.close()
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    before = [{"epoch": epoch, "loss": epoch / 2} for epoch in range(1, kept + 1)]
    assert records == [*before, {"epoch": epochs + 1, "loss": 9.0}]
    assert read_toml(tmp_path / "run" / "config.toml")["graph"] == str(Path("-").absolute())
