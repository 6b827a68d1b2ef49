"""jobs/sweep.sh without SLURM: its runs, that it goes on where it stands, and its table of means and deviations. As a
job array it runs among the commands of jobs/README.md (test_slurm_readme.py).
"""

import collections
import csv
import functools
import json

import pytest
import slurm_helpers
from slurm_helpers import ROOT

OPTIONS = "--model gcn --layers 2 --hidden 8 --epochs 4 --threads 1"
SWEEP = f"bash {ROOT}/jobs/sweep.sh"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture
def call(forking):
    """`slurm_helpers.call`; test_slurm_readme.py has real starts."""
    return functools.partial(slurm_helpers.call, PATH=forking)


def runs_in(folder):
    return {
        str(path.parent.relative_to(folder)): json.loads(path.read_text()) for path in folder.glob("*/*/summary.json")
    }


def test_without_slurm(home, graph, call):
    (home / "values.txt").write_text("# switches too\nresidual=true false\n")
    command = f'{SWEEP} --graph {graph} --out all --ranks 1 --launch "mpiexec -n" --repeat 2'
    first = call(f'{command} --vary "lr=0.01" --file values.txt -- {OPTIONS} --layers 3', home)
    assert first.returncode == 0, first.stderr + first.stdout
    found = runs_in(home / "all")
    assert found.keys() == {f"lr-0.01_residual-{value}/p1-s{seed}" for value in ("true", "false") for seed in (0, 1)}
    for name, summary in found.items():
        config = summary["config"]
        assert config["optim"]["lr"] == 0.01 and config["model"]["layers"] == 3 and summary["ranks"] == 1
        assert config["model"]["residual"] == ("residual-true" in name) and config["run"]["seed"] == int(name[-1])
    with open(home / "all" / "report" / "study.csv") as file:
        rows = {row["label"]: row for row in csv.DictReader(file)}
    runs = collections.Counter(name.split("/")[0] for name in found)
    assert {label: int(row["repetitions"]) for label, row in rows.items()} == runs
    for label, row in rows.items():
        mean, deviation = float(row["test_at_best_val_mean"]), float(row["test_at_best_val_deviation"])
        assert any(label in line and f"{mean:.4f} ± {deviation:.4f}" in line for line in first.stdout.splitlines())
    before = {path: path.stat().st_mtime_ns for path in (home / "all").glob("*/*/summary.json")}
    again = call(f'{command} --vary "lr=0.01 0.05" --vary "residual=true" --repeat 1 -- {OPTIONS} --layers 3', home)
    assert again.returncode == 0 and "2 runs in all, 1 complete, 1 to do" in again.stdout, again.stdout + again.stderr
    assert all(path.stat().st_mtime_ns == changed for path, changed in before.items()), "nothing is run again"
    assert "lr-0.05_residual-true/p1-s0" in runs_in(home / "all")


def test_seeds_alone_and_a_dry_run(home, graph, call):
    command = f"{SWEEP} --graph {graph} --out seeds --ranks 1 --repeat 2"
    dry = call(f'{command} --dry-run --launch "mpiexec -n" -- {OPTIONS}', home)
    assert dry.returncode == 0 and "2 to do" in dry.stdout and "nothing was submitted" in dry.stdout
    assert not (home / "seeds").exists()


def test_the_job_that_submits_says_what_it_needs(call):
    for words, message in (("--launch x", "give it to bash jobs/sweep.sh"), ("--graph g.h5", "this is no SLURM job")):
        done = call(f"bash {ROOT}/jobs/sweep.sbatch {words}")
        assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "words, message",
    [
        ('--vary "lr"', "expected OPTION=VALUE VALUE"),
        ('--vary "lr=0.1 0.1"', "got lr-0.1 twice"),
        ('--vary "lr=0.1" --vary "lr=0.2"', "--vary lr is given twice"),
        ('--vary "seed=1 2"', "seeds come from --repeat"),
        ('--vary "lr=0.1 fast"', "--lr: expected a number, got 'fast'"),
        ('--vary "hiden=8 16"', "expected --hidden perhaps"),
        ("--file none.txt", "cannot read none.txt"),
        ("--wide 3", "unknown option --wide"),
    ],
)
def test_mistakes_take_one_line(home, graph, call, words, message):
    done = call(f'{SWEEP} --graph {graph} --out wrong --ranks 1 --launch "mpiexec -n" {words} -- {OPTIONS}', home)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (home / "wrong").exists()
