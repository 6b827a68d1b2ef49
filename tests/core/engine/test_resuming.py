"""`--resume` as a user gives it: alone it goes on with the run's own options. Every other option gives a line or a
refusal.
"""

import shutil
from pathlib import Path

import pytest

from hpcgnn.__main__ import main
from hpcgnn.app.resuming import changes, options_of_run, options_to_continue
from hpcgnn.config import make_config
from hpcgnn.errors import CheckpointError, ConfigError
from hpcgnn.plan.choices import registry_choices

from ..forked import train

CHOICES = registry_choices()
OPTIONS = "--model sage --hidden 8 --layers 2 --seed 3 --lr 0.02 --dropout 0.1 --eval-every 2".split()


@pytest.fixture(scope="module")
def first(graph, tmp_path_factory):
    """The directory of a run of three epochs on two ranks."""
    run = tmp_path_factory.mktemp("resuming") / "run"
    done = train(2, "--graph", graph, "--run-dir", run, "--epochs", 3, *OPTIONS)
    assert done.code == 0, done.err
    return run


@pytest.fixture
def begun(first, tmp_path):
    """A copy of it that may be changed."""
    return Path(shutil.copytree(first, tmp_path / "run"))


def said(result):
    return [line for line in result.err.splitlines() if "options that change" in line]


def test_it_goes_on_with_its_own_options_and_says_what_changes(begun):
    changed = ["--lr", 5, "--epochs", 4, "--weight-decay", "1e-3", "--eval-every", 1]
    done = train(2, "--resume", "--run-dir", begun, *changed)
    changes = "--lr 0.02 to 5, --weight-decay 0 to 0.001, --epochs 3 to 4, --eval-every 2 to 1"
    assert done.code == 0 and said(done) == [f"options that change from epoch 4 on: {changes}"], done.err
    assert "without effect" not in done.err and (begun / "log.txt").read_text().count(changes) == 1
    assert (begun / "metrics.jsonl").read_text().count("\n") == 4
    again = train(2, "--resume", "--run-dir", begun)
    assert again.code == 0 and said(again) == [], "nothing was changed"


def test_a_run_with_options_that_are_gone_is_used(begun, tmp_path):
    """Removed options of the machine and of training alone are no reason against it; training goes on with a present
    value.
    """
    text = (begun / "config.toml").read_text().replace('halo_dtype = "fp32"', 'halo_dtype = "auto"')
    assert 'halo_dtype = "auto"' in text and "\n[run]\n" in text
    (tmp_path / "config.toml").write_text(text.replace("\n[run]\n", "\n[run]\nspare_core = true\n"))
    used = options_of_run(tmp_path, {})
    assert not {"spare_core", "halo_dtype"} & set(used) and make_config(used, CHOICES).schedule.halo_dtype == "fp32"
    saved = options_to_continue({"resume": True, "run_dir": tmp_path}, [2])
    assert "spare_core" not in saved
    with pytest.raises(ConfigError, match="got 'auto' .* is of an earlier version: int8"):
        make_config(saved, CHOICES)
    config = make_config({**saved, "halo_dtype": "int8"}, CHOICES)
    assert "--halo-dtype auto to int8" in changes(tmp_path, config)


def test_the_rounds_of_tma_keep_their_length(tmp_path):
    tma = make_config({"graph": "g.h5", "schedule": "tma", "average_steps": 2}, CHOICES)
    (tmp_path / "config.toml").write_text(tma.to_toml())
    assert changes(tmp_path, tma.replace(epochs=9)) == "--epochs 200 to 9"
    with pytest.raises(CheckpointError, match="--average-steps is 2 there and 3 here"):
        changes(tmp_path, tma.replace(average_steps=3))


@pytest.mark.parametrize("ranks", [2, 3])
def test_on_other_ranks_the_map_is_one_of_theirs(graph, tmp_path, ranks):
    """The run's map has a name, which the file need not have for another number of ranks."""
    config = make_config({"graph": str(graph), "partition": "random-clusters"}, CHOICES)
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert ("partition" in options_to_continue({"resume": True, "run_dir": tmp_path}, [ranks])) == (ranks == 3)


def test_where_there_is_no_run(tmp_path, capsys):
    assert main(["train", "--resume", "--run-dir", str(tmp_path / "absent")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "there is no run in" in error
    assert not (tmp_path / "absent").exists()
