"""The configurations of jobs/configs: a job would start with each on a small graph of its kind.

Each names the published result, and whether it has been run.
"""

import logging
import re
import shlex
from pathlib import Path

import graphs as generated
import numpy as np
import pytest

from hpcgnn.__main__ import build_parser
from hpcgnn.app.dry_run import check_training
from hpcgnn.config import make_config, read_toml
from hpcgnn.plan.choices import registry_choices
from hpcgnn.unused_options import without_effect
from partition_tools import save_graph

HERE = {"threads": 1, "ranks_on_node": 1, "node": 0}
ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "jobs" / "configs").glob("*.toml"))
pytestmark = pytest.mark.skipif(not CONFIGS, reason="there are no job scripts beside the tests")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """{"plain", "types" of edges, or "features" of edges and several labels: a graph file}."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, kind in {"plain": {}, "types": {"edge_types": 8}}.items():
        path = folder / f"{name}.h5"
        generated.planted(path, [1, 2], nodes=200, features=12, classes=4, **kind)
    draw = np.random.default_rng(1)
    edges, labels, split = draw.integers(0, 200, (2, 900)), draw.integers(0, 2, (200, 4)), np.full(200, "train")
    split[:80:2], split[1:80:2] = "val", "test"
    what = {"labels": labels, "split": split, "edge_features": draw.random((900, 8), np.float32), "ranks": [1, 2]}
    save_graph(folder / "features.h5", edges, **what)
    return {name: folder / f"{name}.h5" for name in ("plain", "types", "features")}


def kind_of(filed):
    """The graph that resembles a configuration's."""
    if filed["model"] == "rgcn":
        return "types"
    return "features" if filed.get("features") == "edges" else "plain"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_job_would_start_with_it(path, graphs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("hpcgnn"), "handlers", [])  # of an earlier test, on a stream that is closed
    filed, choices = read_toml(path), registry_choices()
    assert not filed.keys() & {"graph", "run_dir", "seed"}, "these are the command's"
    graph = graphs[kind_of(filed)]
    config = make_config({**filed, "graph": str(graph), "run_dir": str(tmp_path / "run")}, choices, str(path))
    assert without_effect(config, {}, filed, choices) is None
    check_training(config, [1, 2])
    assert "warning" not in capsys.readouterr().err


def test_heads_say_where_they_stand():
    parser = build_parser(registry_choices())
    for path in CONFIGS:
        head = dict(
            line.removeprefix("# ").split(": ", 1)
            for line in path.read_text().splitlines()
            if re.match("# [A-Z][a-z ]+: ", line)
        )
        assert {"Published", "Run here", "Graph", "Command"} <= head.keys()
        assert re.match(r"none that we are sure of|\d\d\.\d.*[.)] [A-Z].*(19|20)\d\d", head["Published"])
        assert re.match("no; |yes: ", head["Run here"])
        words = shlex.split(head["Command"])
        assert words[-1] == f"jobs/configs/{path.name}" and words[-3:-1] == ["--", "--config"]
        assert f"-o {words[words.index('--graph') + 1]} " in head["Graph"]
        assert f"--ranks {words[words.index('--ranks') + 1]}" in head["Graph"]
        parser.parse_args(["train", *words[words.index("--") + 1 :]])


def test_the_table_of_the_manual_has_all_of_them():
    text = (ROOT / "docs" / "recipes.md").read_text()
    assert re.findall(r"^\| `([\w-]+\.toml)` \|", text, re.MULTILINE) == [path.name for path in CONFIGS]
    (run,) = (path.name for path in CONFIGS if "# Run here: yes" in path.read_text())
    assert f"`{run}` alone was run here" in text
