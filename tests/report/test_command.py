"""`hpcgnn report` as a user meets it: exit codes, one-line errors, and no torch or MPI on the way."""

import pandas as pd
import pytest
from core.launching import start

from .conftest import change


@pytest.mark.usefixtures("undrawn")
def test_a_broken_run_is_told_by_the_exit_code(study_dir, copied, tmp_path, command):
    killed = copied("p2-b", "killed")
    (killed / "summary.json").unlink()
    done = command("report", study_dir / "p1-a", killed, tmp_path / "absent", "--out", tmp_path / "out")
    assert done.code == 3
    warnings = done.err.splitlines()
    assert len(warnings) == 2 and "has not finished" in warnings[0] and "no such directory" in warnings[1]
    assert "has not finished" in (tmp_path / "out/report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_what_lies_about_in_a_folder(copied, tmp_path, command):
    """The good run is reported, each other run is one line, and folders that are no run have none."""
    folder = tmp_path / "runs"
    copied("p2-a", "runs/good")
    (copied("p2-b", "runs/deep/unfinished") / "summary.json").unlink()
    (copied("p2-b", "runs/damaged") / "metrics.jsonl").write_bytes(b"\xff\xfe")
    change(copied("p2-b", "runs/odd"), "summary.json", lambda summary: summary.update(epoch_seconds=None))
    for name, file in (("tool", "config.toml"), ("notes", "notes.txt"), ("empty", None)):
        (folder / name).mkdir()
        if file:
            (folder / name / file).write_text("x = 1\n")
    done = command("report", folder, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    lines = done.err.splitlines()
    assert len(lines) == 3 and all(line.startswith("hpcgnn: warning: ") for line in lines)
    for name, words in (("deep/unfinished", "not finished"), ("damaged", "not text"), ("odd", "not what a run leaves")):
        assert sum(f"/{name}: " in line and words in line for line in lines) == 1
    assert pd.read_csv(tmp_path / "out/runs.csv")["run"].item() == "good"
    done = command("report", folder / "deep", "--out", tmp_path / "none")
    assert done.code == 2 and len(done.err.splitlines()) == 1 and "none of the 1 run directories" in done.err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "names, options, words",
    [
        (["p1-a"], ["--scaling", "superb"], "expected one of "),
        ([], [], "required: RUN_DIR"),
        (["p1-a"], ["--lable-by", "model"], "unknown option --lable-by"),
        (["p1-a"], ["--label-by", "modle"], "no such configuration key; expected one of: "),
    ],
)
def test_mistakes_are_one_line(study_dir, tmp_path, command, names, options, words):
    done = command("report", *(study_dir / name for name in names), *options, "--out", tmp_path / "out")
    assert done.code == 2 and len(done.errors) == done.err.count("\n") == 1 and words in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("undrawn")
def test_where_a_report_cannot_go(copied, tmp_path, command):
    run, file = copied("p1-a"), tmp_path / "file"
    before, _ = sorted(run.rglob("*")), file.write_text("")
    for out, words in ((run, "is a run directory"), (file / "out", "cannot write the report")):
        done = command("report", run, "--out", out)
        assert done.code == 2 and words in done.err
    assert sorted(run.rglob("*")) == before


def test_neither_torch_nor_mpi(study_dir, tmp_path):
    """Held in a process of its own, because the process of the tests has loaded everything; in errors as well."""
    code = (
        "import sys; from hpcgnn.__main__ import main; "
        "print(main(['report', *sys.argv[1:]])); print(main(['report', '/nowhere'])); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'mpi4py', 'h5py', 'pymetis'}))"
    )
    done = start(0, "-c", code, study_dir / "p1-a", study_dir / "p2-a", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "speed-up" in done.out and (tmp_path / "out/report.html").exists()
    assert done.out.splitlines()[-3:] == ["0", "2", "[]"]
