"""Models from a plugin: the README's example as it stands there, trained on two ranks; and files that are no plugins."""

import re
from pathlib import Path

import pytest

from hpcgnn.errors import ConfigError
from hpcgnn.nn.plugin import load_plugin
from hpcgnn.nn.registry import MODELS, register
from hpcgnn.nn.sage import SAGEConv
from partition_tools.generate_graph import generate_graph
from partition_tools.generators.spec import Spec
from partition_tools.partition_graph import partition_graph

from .launching import train

README = Path(__file__).parents[2] / "README.md"


def test_the_example_of_the_readme(tmp_path):
    if not README.exists():
        pytest.skip("there is no README beside the tests")
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "edgeconv.py").write_text(example)
    generate_graph("planted", tmp_path / "g.h5", Spec(nodes=300, degree=6, features=8, classes=3, seed=1))
    partition_graph(tmp_path / "g.h5", [2], num_clusters=16)
    options = "--model edgeconv --layers 2 --hidden 16 --dropout 0 --epochs 30 --eval-every 10".split()
    files = ["--graph", tmp_path / "g.h5", "--plugin", tmp_path / "edgeconv.py", "--run-dir", tmp_path / "run"]
    done = train(2, *files, *options)
    assert done.code == 0, done.out + done.err
    losses = [float(loss) for loss in re.findall(r'"loss": ([0-9.]+)', (tmp_path / "run" / "metrics.jsonl").read_text())]
    assert len(losses) == 30 and losses[-1] < 0.9 * losses[0]


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
        register("gcn")
    with pytest.raises(ValueError, match="self_loops"):
        register("new", self_loops="maybe")
    assert "new" not in MODELS


def test_what_was_said_of_another_forward_is_not_inherited(monkeypatch):
    monkeypatch.setattr("hpcgnn.nn.registry.MODELS", {})

    @register("own")
    class Own(SAGEConv):
        pass

    assert SAGEConv.prunable and SAGEConv.begin_as is not None
    assert not Own.prunable and Own.begin_as is None
