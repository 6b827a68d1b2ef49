"""A task, a plugin of the training loop and a transport of a user's own are one file each for `--plugin`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.generators.spec import Spec

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def hpcgnn(*words):
    command = [sys.executable, "-m", "hpcgnn", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "file, options, said",
    [
        ("ordinal.py", ["--task", "ordinal"], "distance"),
        ("norms.py", [], "epoch 2 norms: ["),
        ("site.py", ["--comm", "site"], '"comm": "site"'),
    ],
)
def test_one_file_is_enough(file, options, said, tmp_path):
    (text,) = re.findall(rf"```python\n(# {file}\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / file).write_text(text)
    generate_graph("planted", tmp_path / "g.h5", Spec(nodes=60, degree=4, features=4, classes=3, seed=1))
    job = ["--graph", tmp_path / "g.h5", "--epochs", 2, "--hidden", 8, "--run-dir", tmp_path / "run"]
    done = hpcgnn("train", "--plugin", tmp_path / file, *job, *options)
    assert done.returncode == 0 and "without effect" not in done.stderr, done.stderr
    result = (tmp_path / "run" / "summary.json").read_text()
    assert said in done.stdout + result and (json.loads(result)["task"] == "ordinal") == (file == "ordinal.py")
    done = hpcgnn("evaluate", tmp_path / "run")
    assert done.returncode == 0, done.stderr
