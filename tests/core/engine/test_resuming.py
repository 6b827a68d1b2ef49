"""`--resume` as a user gives it: alone it goes on with the run's own options, and whatever else is given is said or
refused.
"""

import json

import pytest

from hpcgnn.app.resuming import changes, options_of_run, options_to_continue
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.plan.choices import registry_choices
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..forked import train

CHOICES = registry_choices()
OPTIONS = "--model sage --hidden 8 --layers 2 --seed 3 --lr 0.02 --dropout 0.1 --eval-every 2".split()


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph with maps for 1 and 2 ranks, and a map of another name for 3."""
    path = tmp_path_factory.mktemp("resuming") / "g.h5"
    generate_graph("planted", path, Spec(nodes=300, degree=6, features=8, classes=3, seed=1))
    partition_graph(path, [1, 2], num_clusters=16)
    partition_graph(path, [3], method="random-clusters")
    return path


@pytest.fixture
def begun(graph, tmp_path):
    """The directory of a run of three epochs on two ranks."""
    done = train(2, "--graph", graph, "--run-dir", tmp_path / "run", "--epochs", 3, *OPTIONS)
    assert done.code == 0, done.err
    return tmp_path / "run"


def losses(run_dir):
    return [json.loads(line)["loss"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def said(result):
    return [line for line in result.err.splitlines() if "options that change" in line]


def test_alone_it_goes_on_as_if_never_stopped(graph, begun, tmp_path):
    done = train(2, "--resume", "--run-dir", begun, "--epochs", 6)
    assert done.code == 0 and said(done) == ["options that change from epoch 4 on: --epochs 3 to 6"], done.err
    whole = train(2, "--graph", graph, "--run-dir", tmp_path / "whole", "--epochs", 6, *OPTIONS)
    assert whole.code == 0 and losses(begun) == losses(tmp_path / "whole")
    again = train(2, "--resume", "--run-dir", begun)
    assert again.code == 0 and said(again) == [], "nothing was changed"


def test_a_run_of_before_goes_on_as_it_was(graph, begun, tmp_path):
    """Its config.toml does not know how the initial weights were drawn, and says where dropout acted."""
    old = "--input-dropout aggregate --initial-weights glorot".split()
    whole = train(2, "--graph", graph, "--run-dir", tmp_path / "whole", "--epochs", 6, *OPTIONS, *old)
    assert whole.code == 0 and losses(begun) != losses(tmp_path / "whole")[:3]
    path = tmp_path / "old"
    assert train(2, "--graph", graph, "--run-dir", path, "--epochs", 3, *OPTIONS, *old).code == 0
    lines = (path / "config.toml").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("initial_weights")]
    assert len(kept) == len(lines) - 1
    (path / "config.toml").write_text("".join(kept))
    done = train(2, "--resume", "--run-dir", path, "--epochs", 6)
    assert done.code == 0 and losses(path) == losses(tmp_path / "whole"), done.err


def test_a_run_with_options_that_are_gone_is_used(begun, tmp_path):
    """Those of the machine and of training alone are no reason against it; training goes on with a present value."""
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


def test_what_changes_is_said_in_one_line(begun):
    done = train(
        2, "--resume", "--run-dir", begun, "--lr", 5, "--epochs", 4, "--weight-decay", "1e-3", "--eval-every", 1
    )
    changes = "--lr 0.02 to 5, --weight-decay 0 to 0.001, --epochs 3 to 4, --eval-every 2 to 1"
    assert done.code == 0 and said(done) == [f"options that change from epoch 4 on: {changes}"], done.err
    assert "without effect" not in done.err and (begun / "log.txt").read_text().count(changes) == 1


def test_the_rounds_of_tma_keep_their_length(graph, tmp_path):
    run = "--run-dir", tmp_path / "run"
    tma = "--schedule tma --average-steps 2 --epochs 4 --hidden 8".split()
    assert train(0, "--graph", graph, *run, *tma).code == 0
    done = train(0, "--resume", *run, "--average-steps", 3, "--epochs", 9)
    assert done.code == 2 and "--average-steps is 2 there and 3 here" in done.errors[0]


@pytest.mark.parametrize("ranks", [0, 3])
def test_on_other_ranks_the_map_is_one_of_theirs(begun, ranks):
    """The run's map has a name, which the file need not have for another number of ranks."""
    done = train(ranks, "--resume", "--run-dir", begun, "--epochs", 4)
    assert done.code == 0, done.err
    assert len(losses(begun)) == 4


@pytest.mark.parametrize("ranks", [0, 2])
def test_where_there_is_no_run(graph, tmp_path, ranks):
    done = train(ranks, "--resume", "--run-dir", tmp_path / "absent")
    assert done.code == 2 and len(done.errors) == 1 and "there is no run in" in done.errors[0], done.err
    assert not (tmp_path / "absent").exists()
    begun = train(ranks, "--resume", "--run-dir", tmp_path / "new", "--graph", graph, "--epochs", 1, "--hidden", 8)
    assert begun.code == 0, "as job scripts do, which give the same command every time"
