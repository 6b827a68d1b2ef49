"""The README as a new user follows it: requirements of its commands come before the commands."""

import csv
import os
import random
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from pages import blocks, read

from .forked import start

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


@pytest.fixture(scope="module")
def commands():
    """The lines of the README's shell examples, in order."""
    if not README.exists():
        pytest.skip("there is no README beside the tests")
    return "".join(blocks(README.read_text(), "bash")).splitlines()


@pytest.fixture(scope="module")
def six(commands):
    """The commands from an own graph to predictions."""
    begin = next(number for number, line in enumerate(commands) if " import edges.csv " in line)
    return commands[begin : begin + 6]


def test_activation_comes_before_the_first_command_that_needs_it(commands):
    """After the quick start the next commands failed in a fresh shell: `hpcgnn: command not found`."""
    activation = commands.index(". .venv/bin/activate")
    needing = [number for number, line in enumerate(commands) if re.match(r"(hpcgnn|mpiexec|srun|python) ", line)]
    assert needing and activation < min(needing)


def test_activation_is_enough(commands):
    """In a shell that knows nothing of us."""
    if not (ROOT / ".venv" / "bin" / "activate").exists():
        pytest.skip("this checkout has no .venv: the package is installed elsewhere")
    activate = next(line for line in commands if "activate" in line)
    command = f"{activate} && hpcgnn --version && python -m partition_tools --help"
    environment = {"HOME": os.environ.get("HOME", "/"), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    pipes = {"capture_output": True, "text": True, "timeout": 90}
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, **pipes)
    assert done.returncode == 0 and done.stdout.startswith("hpcgnn "), done.stderr


@pytest.fixture
def tables(tmp_path):
    """A folder with edges.csv, features.csv and labels.csv: two groups of nodes, most edges within them."""
    draw, nodes, classes = random.Random(1), 400, ("art", "science")
    rows = {
        "edges": [("src", "dst")],
        "features": [("id", *(f"f{column}" for column in range(8)))],
        "labels": [("id", "label")],
    }
    for node in range(nodes):
        group = node % 2
        rows["labels"].append((node, classes[group]))
        rows["features"].append((node, *(round(draw.gauss(group, 1), 3) for _ in range(8))))
        rows["edges"] += [(node, draw.randrange(group, nodes, 2)) for _ in range(4)] + [(node, draw.randrange(nodes))]
    for name, lines in rows.items():
        with open(tmp_path / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)
    return tmp_path


def test_an_own_graph_to_predictions(six, tables):
    """The README's commands, one after another as they stand there, in a folder with the three tables."""
    pytest.importorskip("polars", reason="tables are read by the extra `import`")
    pytest.importorskip("matplotlib", reason="a report needs the extra `plot`")
    assert [run_one(line, tables) for line in six] == [0] * 6
    with open(tables / "predictions.csv", newline="", encoding="utf-8") as file:
        found = {int(row["node"]): int(row["class"]) for row in csv.DictReader(file)}
    right = sum(found[node] == node % 2 for node in range(400))
    assert len(found) == 400 and right > 350, "classes are numbered in the order of their names"
    assert (tables / "runs" / "first-report" / "report.html").exists()


def run_one(line, folder):
    """The exit code of `[mpiexec -n N] (hpcgnn|python -m MODULE) …`, run in `folder` by this Python."""
    words = shlex.split(line)
    ranks = 0
    if words[0] == "mpiexec":
        assert words[1] == "-n"
        ranks, words = int(words[2]), words[3:]
    words = ["-m", "hpcgnn", *words[1:]] if words[0] == "hpcgnn" else words[1:]
    done = start(ranks, *words, cwd=folder)
    print(done.out, done.err)
    return done.code


def test_the_quick_start_has_the_same_commands(six):
    """docs/quickstart.md explains the six commands."""
    assert "\n".join(six) in read("quickstart.md")
