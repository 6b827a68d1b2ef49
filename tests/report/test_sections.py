"""A folder of mixed runs: studies of what can be compared, each by itself, and a line for each thing that is left
out.
"""

import re

import pandas as pd
import pytest

from hpcgnn.errors import ConfigError
from hpcgnn.report.read import read_runs
from hpcgnn.report.sections import make_sections

from .conftest import RUNS, change, change_ranks


def test_a_folder_of_everything(study_dir, tmp_path, report):
    """Two graphs, two models, three caps, one and two ranks: curves of one graph together, each of one model."""
    done = report(study_dir, "--out", tmp_path / "out")
    assert (done.code, done.err) == (0, ""), done.err
    small, large = (pd.read_csv(tmp_path / f"out/graph-{name}/runs.csv") for name in ("small", "large"))
    assert set(large["run"]) == {"weak-p2"} and set(small["run"]) == RUNS.keys() - {"weak-p2"}
    labels = small.set_index("run")["label"]
    assert all("sage" in labels[name] for name in ("p1-a", "p2-a", "fine-p2"))
    assert labels["gcn-p2"] == "model gcn, cap 8 MiB" and labels["p1-a"] == labels["p2-b"] == "model sage, cap 8 MiB"
    assert small.groupby("label")["graph"].nunique().max() == 1
    page = (tmp_path / "out/report.html").read_text()
    assert page.count('<h1 class="part">Graph ') == 2 and page.count("Parallel efficiency") < page.count(
        "Training loss"
    )
    assert (
        not (tmp_path / "out/scaling.csv").exists() and "# Graph small.h5" in (tmp_path / "out/report.md").read_text()
    )


def test_one_number_of_ranks_has_no_speed_up(runs):
    (section,), _ = make_sections(runs("p1-a", "p2-a", "gcn-p2"))
    points = section.study.points.set_index("label")
    assert section.study.mode == "strong" and points.loc["model sage", "efficiency"].notna().all()
    assert pd.isna(points.loc["model gcn", "efficiency"]) and pd.isna(points.loc["model gcn", "speedup"])


def test_models_have_curves_of_their_own(runs):
    (section,), left_out = make_sections(runs("p1-a", "p2-a", "gcn-p2"))
    assert section.study.labels == ["model sage", "model gcn"] and (section.folder, left_out) == ("", [])


def test_weak_scaling_stays_together_among_others(runs, copied):
    """Its graphs are one study, though another model was trained on one of them."""
    other, _ = read_runs([copied("gcn-p2")])
    sections, _ = make_sections([*runs("p1-a", "weak-p2"), *other])
    assert [section.study.mode for section in sections] == ["weak"]
    assert sections[0].study.labels == ["model sage", "model gcn"]


@pytest.mark.parametrize("what", ["size", "task"])
def test_two_graphs_are_not_a_weak_scaling_by_chance(copied, runs, what):
    """A graph on one rank and another on two, of which each rank has no like share, or whose models differ in size."""
    path = copied("weak-p2")
    if what == "size":
        change_ranks(path, lambda record: record.update(nodes=3 * record["nodes"]))
    else:
        change(path, "summary.json", lambda summary: summary.update(parameters=summary["parameters"] + 1))
    other, _ = read_runs([path])
    sections, _ = make_sections([*runs("p1-a"), *other])
    assert [section.study.mode for section in sections] == ["none", "none"]
    assert all(re.fullmatch(r"Graph \w+\.h5 \(\w{8}\)", section.title) for section in sections)


def test_metrics_are_not_mixed(copied, runs):
    path = copied("p2-b")
    change(path, "summary.json", lambda summary: summary.update(metric="roc-auc"))
    other, _ = read_runs([path])
    sections, _ = make_sections([*runs("p1-a", "p2-a"), *other])
    assert [len(section.study.runs) for section in sections] == [2, 1]
    assert [section.title.rsplit(", ")[-1] for section in sections] == ["accuracy", "roc-auc"]
    assert [section.folder for section in sections] == ["graph-small", "graph-small-2"]


def test_what_is_asked_for_holds_in_every_study(runs):
    found = runs("p1-a", "p2-a", "gcn-p2", "weak-p2")
    sections, _ = make_sections(found, ["model"], baseline="model gcn")
    assert [section.study.labels for section in sections] == [["model sage", "model gcn"], ["model sage"]]
    assert [section.study.baseline for section in sections] == ["model gcn", None]
    with pytest.raises(ConfigError, match="--baseline 'model gat' is no label; expected one of: model sage; model gcn"):
        make_sections(found, ["model"], baseline="model gat")
    (together,), _ = make_sections(found, ["graph", "model"])
    assert len(together.study.labels) == 3, "asked for"


def test_what_labels_do_not_tell_apart_is_left_out_with_the_reason(runs):
    sections, left_out = make_sections(runs("p2-a", "fine-p2", "weak-p2"), ["model"])
    assert [section.title[:14] for section in sections] == ["Graph large.h5"]
    ((title, reason),) = left_out
    assert title.startswith("Graph small.h5") and "halo_buffer is 0.05, 8.0" in reason and "\n" not in reason


@pytest.fixture
def messy(copied, tmp_path):
    """A folder with one good run, and what else lies about."""
    folder = tmp_path / "runs"
    copied("p2-a", "runs/good")
    (copied("p2-b", "runs/deep/unfinished") / "summary.json").unlink()
    (copied("p2-b", "runs/damaged") / "metrics.jsonl").write_bytes(b"\xff\xfe")
    change(copied("p2-b", "runs/odd"), "summary.json", lambda summary: summary.update(epoch_seconds=None))
    change(copied("p2-b", "runs/odder"), "summary.json", lambda summary: summary.update(ranks="two", config=[]))
    for name, file in (("tool", "config.toml"), ("notes", "notes.txt"), ("empty", None)):
        (folder / name).mkdir()
        if file:
            (folder / name / file).write_text("x = 1\n")
    return folder


def test_what_lies_about_in_a_folder(messy, tmp_path, report):
    """The good run is reported, each other is one line, and what is no run is not spoken of."""
    done = report(messy, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    lines = done.err.splitlines()
    assert len(lines) == 4 and all(line.startswith("hpcgnn: warning: ") for line in lines)
    for name, words in (
        ("deep/unfinished", "has not finished"),
        ("damaged", "not text"),
        ("odd", "not what a run leaves"),
        ("odder", "not what a run leaves"),
    ):
        assert sum(f"/{name}: " in line and words in line for line in lines) == 1
    assert (tmp_path / "out/problems.md").exists() and pd.read_csv(tmp_path / "out/runs.csv")["run"].item() == "good"


def test_nothing_in_a_folder_can_be_reported(messy, tmp_path, report):
    done = report(messy / "deep", "--out", tmp_path / "out")
    assert done.code == 2 and len(done.err.splitlines()) == 1 and "has not finished" in done.err
    assert report(messy / "notes", "--out", tmp_path / "out").code == 2 and not (tmp_path / "out").exists()


def test_studies_of_an_earlier_report_are_removed(study_dir, tmp_path, report):
    out = tmp_path / "out"
    assert report(study_dir, "--out", out).code == 0
    (out / "graph-large/mine.txt").write_text("kept")
    assert report(study_dir / "p1-a", study_dir / "p2-a", "--out", out).code == 0
    assert [path.name for path in out.iterdir() if path.is_dir()] == ["graph-large"]
    assert [path.name for path in (out / "graph-large").iterdir()] == ["mine.txt"]
