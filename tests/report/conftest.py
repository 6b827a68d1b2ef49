"""Run directories made by real training on tiny graphs, at one and two ranks, once for all tests of reports."""

import json
import shutil
from pathlib import Path

import graphs
import pytest
from core.forked import start

from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study
from hpcgnn.report.write import write_report

EPOCHS = 5
SMALL = {"model": "sage", "layers": 2, "hidden": 8, "epochs": EPOCHS}
# name: (graph, ranks, options)
RUNS = {
    "p1-a": ("small", 1, {"seed": 0}),
    "p1-b": ("small", 1, {"seed": 1}),
    "p2-a": ("small", 2, {"seed": 0}),
    "p2-b": ("small", 2, {"seed": 1}),
    "fine-p2": ("small", 2, {"halo_buffer": 0.05}),
    "sent-p2": ("small", 2, {"intra_node": "messages"}),
    "gcn-p2": ("small", 2, {"model": "gcn"}),
    "weak-p2": ("large", 2, {}),
}


@pytest.fixture(scope="session")
def study_dir(tmp_path_factory):
    """A folder with one directory for each of `RUNS`. Read only: copy a directory before you damage it."""
    folder = tmp_path_factory.mktemp("study")
    for name, nodes in (("small", 240), ("large", 480)):
        graph = folder / f"{name}.h5"
        graphs.planted(graph, [1, 2], clusters=32, nodes=nodes, features=12)
    for ranks in sorted({ranks for _, ranks, _ in RUNS.values()}):
        jobs = [
            (name, {**SMALL, "graph": f"{folder / graph}.h5", **options})
            for name, (graph, wanted, options) in RUNS.items()
            if wanted == ranks
        ]
        done = start(ranks, Path(__file__).with_name("make_runs.py"), folder, json.dumps(jobs))
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def runs(study_dir):
    """runs(names …) -> list of Run; all good."""

    def read(*names):
        found, broken = read_runs([study_dir / name for name in names])
        assert not broken
        return found

    return read


@pytest.fixture
def copied(study_dir, tmp_path):
    """copied(name, new name) -> the path of a copy that may be changed."""

    def copy(name, new=None):
        return Path(shutil.copytree(study_dir / name, tmp_path / (new or name)))

    return copy


def change(path, name, function):
    """Rewrite a JSON file of a run by function(object)."""
    value = json.loads((path / name).read_text())
    function(value)
    (path / name).write_text(json.dumps(value))


@pytest.fixture(scope="session")
def written(study_dir, tmp_path_factory):
    """(study, folder) of a report with two curves and a missing run."""
    names = ("p1-a", "p1-b", "p2-a", "p2-b", "fine-p2", "missing")
    found, broken = read_runs([study_dir / name for name in names])
    study, folder = build_study(found), tmp_path_factory.mktemp("reports") / "report"
    write_report(study, [(one.name, one.reason) for one in broken], folder)
    return study, folder


@pytest.fixture
def undrawn(monkeypatch):
    """Reports have no figures, since figures take the time."""
    monkeypatch.setattr("hpcgnn.report.write.draw_figures", lambda study: {})
