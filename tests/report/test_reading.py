"""A directory is a complete run, or it is listed with the reason; nothing in between, and nothing raises."""

import pytest

from hpcgnn.report.read import read_runs

from .conftest import EPOCHS, RUNS


def test_runs_are_found_below_a_folder_and_once(study_dir):
    found, broken = read_runs([study_dir, study_dir / "p1-a"])
    assert [run.name for run in found] == sorted(RUNS) and broken == []


def cut(path, name, share=0.5):
    text = (path / name).read_text()
    (path / name).write_text(text[: int(len(text) * share)])


DAMAGES = {
    "no summary": (lambda p: (p / "summary.json").unlink(), f"not finished: {EPOCHS} epochs are recorded"),
    "no records": (lambda p: (p / "metrics.jsonl").unlink(), "cannot read metrics.jsonl: No such file"),
    "half a summary": (lambda p: cut(p, "summary.json"), "summary.json is damaged"),
    "records lost": (
        lambda p: (p / "metrics.jsonl").write_text("\n".join((p / "metrics.jsonl").read_text().splitlines()[:-1])),
        f"summary.json tells of {EPOCHS} epochs, metrics.jsonl of {EPOCHS - 1}",
    ),
    "a rank's record lost": (
        lambda p: (p / "ranks.jsonl").write_text((p / "ranks.jsonl").read_text().splitlines()[0]),
        "summary.json tells of 2 ranks, ranks.jsonl of 1",
    ),
    "half a rank's record": (lambda p: cut(p, "ranks.jsonl", 0.95), "line 2 of ranks.jsonl is damaged"),
    "another object": (lambda p: (p / "summary.json").write_text("[]"), "summary.json lacks 'ranks'"),
}


@pytest.mark.parametrize("damage, reason", DAMAGES.values(), ids=DAMAGES)
def test_damaged_runs(copied, damage, reason):
    path = copied("p2-a")
    damage(path)
    found, broken = read_runs([path])
    assert found == [] and [one.path for one in broken] == [path]
    assert reason in broken[0].reason and "\n" not in broken[0].reason
