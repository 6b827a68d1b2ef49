"""Every command of jobs/README.md, in its order, as a reader would give them."""

import csv
import json
import re

import h5py
import pytest
from slurm_helpers import ROOT

README = (ROOT / "jobs" / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line
]
# What the session's fixture does with the same words.
LIFE = {"bash env/slurm-local.sh up", 'eval "$(bash env/slurm-local.sh env)"', "bash env/slurm-local.sh down"}


@pytest.mark.slow
@pytest.mark.parametrize("command", [line for line in COMMANDS if line not in LIFE], ids=lambda line: line[:50])
def test_a_command(cluster, command):
    before = set(cluster.jobs())
    cluster.run(command)
    new = {job: state for job, state in cluster.wait().items() if job not in before}
    assert set(new.values()) <= {"COMPLETED"}, f"{new}\n{logs(cluster)}"


def logs(cluster):
    files = [*cluster.home.glob("slurm-*.out"), *cluster.home.glob("runs/trial/*/log/*.txt")]
    return "\n".join(f"== {file}\n{file.read_text()[-1500:]}" for file in files)


def test_the_commands_are_all_there():
    assert LIFE <= set(COMMANDS)
    scripts = {path.name for pattern in ("*.sbatch", "*.sh") for path in (ROOT / "jobs").glob(pattern)}
    for script in scripts:
        assert f"| `{script}` |" in README, "each script has its row in the table"
    assert {name for name in scripts if any(f"jobs/{name}" in line for line in COMMANDS)} == scripts - {"report.sbatch"}


def test_every_schedule_is_compared():
    from hpcgnn.schedules.schedule_registry import SCHEDULES

    text = (ROOT / "jobs" / "schedules.sh").read_text(encoding="utf-8")
    assert all(f'="--schedule {name}' in text for name in SCHEDULES)


@pytest.mark.slow
def test_what_they_left(cluster):
    """After the commands above."""
    trial = cluster.home / "runs" / "trial"
    evaluation = json.loads((trial / "first" / "evaluation.json").read_text())
    summary = json.loads((trial / "first" / "summary.json").read_text())
    assert summary["ranks"] == 4 and evaluation["ranks"] == 1
    assert evaluation["val"] == pytest.approx(summary["best_val"], abs=0.01)
    with h5py.File(trial / "first" / "predictions.h5") as file:
        assert file["prediction"].shape == (2000,)
    for study, runs in (("strong", 2), ("weak", 2), ("memory", 2)):
        assert len(list((trial / study).glob("*/summary.json"))) == runs
    variants = {path.parts[-3] for path in (trial / "schedules").glob("*/p2-s0/summary.json")}
    assert variants == {"sar", "tma-super-nodes", "lazy"}
    for name in ("study.csv", "learning-loss.png"):
        assert (trial / "schedules" / "report" / name).exists()
    with open(trial / "sweep" / "report" / "study.csv") as file:
        table = {row["label"]: row for row in csv.DictReader(file)}
    assert table.keys() == {"lr-0.01", "lr-0.03"}
    provenance, _, _ = sorted((trial / "first" / "jobs").iterdir())  # of training, evaluation, predictions
    assert {path.name for path in provenance.iterdir()} == {
        *("script", "site", "job.txt", "hosts.txt", "versions.txt", "environment.txt")
    }
    assert (provenance / "hosts.txt").read_text().split() == ["n1", "n2"]
    assert (provenance / "script").read_text() == (ROOT / "jobs" / "train.sbatch").read_text()
    assert "torch==" in (provenance / "versions.txt").read_text()
