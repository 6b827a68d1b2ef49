"""Seconds of `hpcgnn estimate --like RUN`: a run's own, where the job is the run's, and else scaled by exact counts."""

import json
import shutil
from dataclasses import replace

import pytest
from core.forked import train

from hpcgnn.extras.estimate.like import Counts, Measured

from .test_estimate_command import estimate, refused

COUNTS = Counts(gathered=8e6, multiplied=4e6, sent=64_000, reduced=1600, parameters=400, ranks=4)
RUN = Measured({"work": 0.8, "messages": 0.1, "reduction": 0.02, "step": 0.01}, COUNTS, "")
SMALL = "--model sage --layers 2 --hidden 8".split()


def scaled(**changed):
    return tuple(RUN.scaled(replace(COUNTS, **changed)).values())


def test_parts_scale_as_counts_do():
    twice = {name: 2 * value for name, value in vars(COUNTS).items() if name != "ranks"}
    assert scaled() == (RUN.parts, RUN.parts)
    for found in scaled(**twice):
        assert found == pytest.approx({name: 2 * value for name, value in RUN.parts.items()})
    for found in scaled(parameters=1200, reduced=4800):
        assert found == pytest.approx(RUN.parts | {"reduction": 0.06, "step": 0.03})


def test_ranges():
    """Edges and rows may grow apart, hidden messages come out where work falls more, and collectives take steps."""
    least, most = scaled(gathered=2e6, multiplied=2e6)
    assert (least["work"], most["work"]) == pytest.approx((0.2, 0.4))
    least, most = scaled(gathered=1e6, multiplied=5e5, sent=32_000)
    assert (least["messages"], most["messages"]) == pytest.approx((0.05, 0.05 + 0.8 * (1 / 2 - 1 / 8)))
    least, most = scaled(sent=16_000)
    assert (least["messages"], most["messages"]) == pytest.approx((0, 0.025)), "work hides all of it, or as before"
    least, most = scaled(ranks=16)
    assert (least["reduction"], most["reduction"]) == pytest.approx((0.02, 0.04))


@pytest.fixture(scope="module")
def trained(graph, tmp_path_factory):
    """(the graph file, the directory of a run on two ranks)."""
    folder = tmp_path_factory.mktemp("like")
    sends = "--intra-node", "messages"
    done = train(2, "--graph", graph, *SMALL, *sends, "--epochs", 4, "--run-dir", folder / "run")
    assert done.code == 0, done.err
    return graph, folder / "run"


def rows_of(capsys, tmp_path, graph, run, *more):
    options = ("--graph", graph, "--like", run, "--json", tmp_path / "o.json", "--force", *more)
    return estimate(capsys, *options), json.loads((tmp_path / "o.json").read_text())


def test_a_job_like_the_run_takes_its_seconds(capsys, tmp_path, trained):
    out, (same, other) = rows_of(capsys, tmp_path, *trained, "--ranks", "2,4")
    seconds = json.loads((trained[1] / "summary.json").read_text())["epoch_seconds"]["median"]
    assert same["seconds"]["least"] == same["seconds"]["most"]
    assert sum(same["seconds"]["least"].values()) == pytest.approx(seconds)
    assert other["seconds"]["least"]["work"] < 0.7 * same["seconds"]["least"]["work"]
    assert f"scaled from {trained[1]}: {trained[0]}, ranks × threads 2 × 1, {seconds:.3g} s there" in out
    assert "not known: another machine" in out


def test_what_is_refused(capsys, tmp_path, trained):
    graph, run = trained
    words = ("--graph", graph, "--ranks", "2", *SMALL, "--like")
    assert "is not the directory of a run" in refused(capsys, *words, tmp_path)
    copy = shutil.copytree(run, tmp_path / "copy")
    text = (copy / "summary.json").read_text()
    (copy / "summary.json").write_text(text.replace('"graph_uuid": "', '"graph_uuid": "not '))
    assert "is not the graph that the run was trained on" in refused(capsys, *words, copy)
    (copy / "summary.json").write_text(text)
    epochs = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    for epoch in epochs:
        del epoch["seconds"]["reduction"]["min"]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    assert "expected a finished run with the seconds of its ranks: 'min'" in refused(capsys, *words, copy)
    (copy / "summary.json").unlink()
    assert "expected a finished run" in refused(capsys, *words, copy)


def test_a_run_of_one_rank_says_nothing_of_messages():
    with pytest.raises(ValueError, match="nothing is sent in the run; expected one of several ranks"):
        replace(RUN, counts=replace(COUNTS, sent=0)).scaled(COUNTS)
