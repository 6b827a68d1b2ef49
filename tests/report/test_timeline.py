"""The picture of a traced epoch: what is drawn of which ranks, and that a damaged trace takes nothing from a report."""

import gzip
import json
from types import SimpleNamespace

import pytest

from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study
from hpcgnn.report.timeline import Lane, about, chosen_ranks, has_trace, pieces_of, read_lanes, traced_run
from hpcgnn.report.write import write_report


def test_a_piece_is_what_took_most_of_it():
    """Ten pieces of a second: the phase shows where no activity took more, and nothing where the rank is done."""
    lane = Lane(0, {"forward": [(0.0, 5.0)], "wait": [(1.0, 2.0), (3.6, 4.0)], "gather": [(2.0, 2.9)]}, 7.0)
    assert pieces_of(lane, 10.0, 10) == [
        ("forward", 0, 1),
        ("wait", 1, 1),
        ("gather", 2, 1),
        ("forward", 3, 2),
        ("", 5, 5),
    ]


def test_many_short_spans_are_one_piece():
    """A hundred of each in a piece: those that take longer in sum."""
    spans = {
        "wait": [(n / 100, n / 100 + 0.006) for n in range(100)],
        "gather": [(n / 100 + 0.006, n / 100 + 0.01) for n in range(100)],
    }
    assert pieces_of(Lane(0, spans, 1.0), 1.0, 1) == [("wait", 0, 1)]


def test_of_very_many_ranks_the_slowest_middle_and_fastest(tmp_path):
    (tmp_path / "trace").mkdir()
    for rank in range(100):
        (tmp_path / "trace" / f"rank-{rank:05d}.json.gz").touch()
    records = [
        {"rank": rank, "losses": {"parts": {"forward": {"seconds": 10.0, "waiting_seconds": rank / 10}}}}
        for rank in range(100)
    ]
    run = SimpleNamespace(path=tmp_path, ranks=records)
    assert chosen_ranks(run) == [0, 1, 2, 3, 48, 49, 50, 51, 96, 97, 98, 99]
    assert chosen_ranks(SimpleNamespace(path=tmp_path, ranks=[])) != [], "records of earlier versions do not tell"


def test_lanes_of_a_real_run(runs):
    (run,) = runs("p2-b")
    epoch, lanes = read_lanes(run)
    assert epoch == 3 and [lane.rank for lane in lanes] == [0, 1]
    for lane in lanes:
        assert {"forward", "backward", "gather", "wait", "all ranks"} <= lane.spans.keys()
        assert all(-1e-6 <= begin <= end <= lane.end + 1e-6 for each in lane.spans.values() for begin, end in each)


def test_the_figure_is_there_where_a_run_was_traced(runs, tmp_path):
    study = build_study(runs("p2-a", "p2-b"))
    assert traced_run(study).name.endswith("p2-b") and "epoch 3, all 2 ranks" in about(study)
    write_report(study, [], tmp_path / "out")
    assert "waiting for messages" in (tmp_path / "out/timeline.svg").read_text()
    assert "What the ranks did in an epoch" in (tmp_path / "out/report.html").read_text()
    write_report(build_study(runs("p2-a")), [], tmp_path / "out")
    assert not (tmp_path / "out/timeline.svg").exists()


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b'{"traceEvents": []}')])
def test_a_damaged_trace(copied, tmp_path, content):
    path = copied("p2-b")
    (path / "trace" / "rank-00001.json.gz").write_bytes(content)
    study = build_study(read_runs([path])[0])
    assert has_trace(study)
    epoch, lanes = read_lanes(study.runs[0])
    assert (epoch, len(lanes)) in ((3, 1), (0, 0)), "the other rank's, or none if one is empty"
    write_report(study, [], tmp_path / "out")


def test_traces_are_json_as_it_stands(runs):
    """Strictly: what browsers read has no NaN."""
    (run,) = runs("p2-b")
    for file in (run.path / "trace").iterdir():
        text = gzip.decompress(file.read_bytes()).decode()
        json.loads(text, parse_constant=lambda word: pytest.fail(word))
