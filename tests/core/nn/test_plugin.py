"""Models from a plugin: the README's example as it stands there, trained on two ranks; and files that are no
plugins.
"""

import os
import re
import sys

import pytest
import torch

from hpcgnn.__main__ import main
from hpcgnn.engine.checkpoint import check_identity, save_checkpoint
from hpcgnn.engine.optim import Sgd
from hpcgnn.errors import CheckpointError, ConfigError
from hpcgnn.nn.plugin import load_plugin, plugin_hash, plugin_source
from hpcgnn.nn.registry import MODELS, register
from hpcgnn.nn.sage import SAGEConv

from ..forked import start

NEIGHBOURS = """
import torch
from hpcgnn.nn.registry import register

@register("largest")
class Largest(torch.nn.Linear):
    def __init__(self, d_in, d_out, dtype):
        super().__init__(d_in, d_out, dtype=dtype)

    def forward(self, graph, x):
        return super().forward(graph.propagate(lambda source: source, "max", x_src=x))
"""


def test_the_plugin_is_part_of_the_run(graph, tmp_path):
    """A run is evaluated from any directory by its copy of the file, and with the file from elsewhere, which has the
    same code. After `max` had become `min` in the file, `evaluate` and `--resume` went on with another model.
    """
    plugin, run = tmp_path / "largest.py", tmp_path / "run"
    plugin.write_text(NEIGHBOURS)
    options = f"--graph {graph} --model largest --plugin largest.py --run-dir run --hidden 8 --dropout 0".split()

    def go(ranks, command, *more, cwd=tmp_path):
        return start(ranks, "-m", "hpcgnn", command, *(options if command == "train" else [run]), *more, cwd=cwd)

    assert go(2, "train", "--epochs", "3").code == 0
    assert (run / "plugin.py").read_text() == NEIGHBOURS
    plugin.rename(tmp_path / "moved.py")
    (tmp_path / "elsewhere").mkdir()
    by_copy = go(0, "evaluate", cwd=tmp_path / "elsewhere")
    by_name = go(2, "evaluate", "--plugin", tmp_path / "moved.py")
    assert by_copy.code == by_name.code == 0, by_copy.err + by_name.err
    scores = [re.findall(r"(?:val|test) accuracy *│ ([0-9.]+)", done.out) for done in (by_copy, by_name)]
    assert scores[0] == scores[1] and len(scores[0]) == 2
    plugin.write_text(NEIGHBOURS.replace('"max"', '"min"'))
    for ranks, command, more, words in (
        (2, "train", ("--epochs", "5", "--resume"), "run/plugin.py"),
        (0, "evaluate", ("--plugin", plugin), "other code"),
    ):
        refused = go(ranks, command, *more)
        assert refused.code == 2 and len(refused.errors) == 1 and words in refused.errors[0], refused.err
    done = go(0, "train", "--epochs", "5", "--resume", "--plugin", "run/plugin.py")
    assert done.code == 0 and "3 epochs are done" in done.err, done.err


def test_an_edit_in_the_same_second_is_seen(tmp_path):
    """Python's cache of compiled files goes by second and size, and gave the code of before."""
    monkey = tmp_path / "edited.py"
    for word in ("max", "min"):
        monkey.write_text(f"word = {word!r}\n")
        os.utime(monkey, (1e9, 1e9))
        load_plugin(monkey)
        assert sys.modules["hpcgnn_plugin_edited"].word == word
    assert not list(tmp_path.glob("__pycache__"))


def test_what_is_recorded_is_what_was_run(tmp_path):
    """A graph takes minutes to load; a file that is edited meanwhile was recorded as the run's."""
    (tmp_path / "recorded.py").write_text("a = 1\n")
    load_plugin(tmp_path / "recorded.py")
    before = plugin_hash(tmp_path / "recorded.py")
    (tmp_path / "recorded.py").write_text("a = 2\n")
    assert plugin_source(tmp_path / "recorded.py") == b"a = 1\n" and plugin_hash(tmp_path / "recorded.py") == before
    load_plugin(tmp_path / "recorded.py")
    assert plugin_hash(tmp_path / "recorded.py") != before


def test_a_checkpoint_that_is_older_than_the_record_of_plugins(tmp_path):
    """It goes on with the named file."""
    present = {"graph": "g", "plugin": "0123456789abcdef"}
    check_identity(tmp_path / "run" / "checkpoints" / "epoch-1.h5", {"graph": "g"}, present)
    with pytest.raises(CheckpointError, match="other code"):
        check_identity(tmp_path / "run" / "checkpoints" / "epoch-1.h5", {"graph": "g", "plugin": ""}, present)


@pytest.fixture
def run_of_code(tmp_path):
    """(a run directory whose config.toml names a file of code, the folder that it makes when it runs)."""
    run, ran = tmp_path / "run", tmp_path / "ran"
    run.mkdir()
    (run / "plugin.py").write_text(f"import os\nos.mkdir({str(ran)!r})\n")
    (run / "config.toml").write_text(f'[model]\nplugin = "{run}/plugin.py"\n')
    model = torch.nn.Linear(1, 1)
    identity = {"plugin": plugin_hash(run / "plugin.py")}
    save_checkpoint(run, model, Sgd([], 1.0), None, {"epoch": 1, "identity": identity})
    return run, ran


def test_code_of_a_run_does_not_run_unasked(run_of_code, monkeypatch, capsys):
    run, ran = run_of_code
    words = ["predict", str(run), "-o", "p.csv"]
    with monkeypatch.context() as patch:
        patch.setattr("hpcgnn.nn.plugin._owner", lambda file: os.getuid() + 1)
        assert main(words) == 2 and not ran.exists()
        assert "--trust-run" in capsys.readouterr().err
        assert main([*words, "--trust-run"]) == 2 and ran.exists(), "there is no graph"
    ran.rmdir()
    (run / "plugin.py").write_text((run / "plugin.py").read_text() + "# changed\n")
    assert main(words) == 2 and not ran.exists()
    assert "another code than the checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["--config RUN/config.toml", "--resume --run-dir RUN"])
def test_code_of_a_configuration_does_not_run_unasked(run_of_code, monkeypatch, capsys, given):
    run, ran = run_of_code
    monkeypatch.setattr("hpcgnn.nn.plugin._owner", lambda file: os.getuid() + 1)
    assert main(["train", *f"--graph g.h5 {given}".replace("RUN", str(run)).split()]) == 2
    assert not ran.exists() and "plugin.py is code of another owner" in capsys.readouterr().err


def test_what_is_no_plugin(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        load_plugin(tmp_path / "absent.py")
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(ConfigError, match="cannot be parsed"):
        load_plugin(tmp_path / "broken.py")
    (tmp_path / "notes.txt").write_text("x = 1\n")
    with pytest.raises(ConfigError, match="ends with .py"):
        load_plugin(tmp_path / "notes.txt")


def test_names_are_taken_once():
    with pytest.raises(ValueError, match="exists"):
        register("gcn")(type("Own", (), {}))
    with pytest.raises(ValueError, match="self_loops"):
        register("new", self_loops="maybe")
    assert "new" not in MODELS


def test_what_was_said_of_another_forward_is_not_inherited(monkeypatch):
    monkeypatch.setitem(MODELS, "own", None)  # so that it goes in the end
    del MODELS["own"]

    @register("own")
    class Own(SAGEConv):
        pass

    assert SAGEConv.traits.prunable and not Own.traits.prunable
