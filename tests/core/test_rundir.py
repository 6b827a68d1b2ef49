"""The run directory: one writer, and errors that are heard."""

import multiprocessing
import os
import resource

import pytest

from hpcgnn.errors import RunDirError
from hpcgnn.train.rundir import RunDir, log


def test_two_jobs_in_one_run_directory(tmp_path):
    """The second says so and stops, whether it resumes or not, and the first notices nothing."""
    first = RunDir(tmp_path / "run", resume=False)
    first.append({"epoch": 1})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for resume, words in ((True, "in use by another job"), (False, "is not empty")):
        with pytest.raises(RunDirError, match=words):
            RunDir(tmp_path / "run", resume)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    first.append({"epoch": 2})
    assert [record["epoch"] for record in first.records()] == [1, 2]
    first._begun = True
    first.close()
    RunDir(tmp_path / "run", resume=True).close()


def fill_the_disk_and_write(path):
    run_dir = RunDir(path, resume=False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    log.warning("this cannot be written")
    try:
        run_dir.append({"epoch": 1})
    except RunDirError as error:
        run_dir.close()
        os._exit(7 if "free space" in str(error) else 1)
    os._exit(2)


def test_a_full_disk_is_what_is_reported(tmp_path, capfd):
    """Closing the file once failed like writing to it had, and hid the error behind a traceback."""
    child = multiprocessing.get_context("fork").Process(target=fill_the_disk_and_write, args=(tmp_path / "run",))
    child.start()
    child.join(60)
    assert child.exitcode == 7
    assert "Traceback" not in capfd.readouterr().err
