"""What a stage says in a log: its name, and from time to time how far it is; on a terminal a bar."""

import io

import pytest

from partition_tools.workspace import progress
from partition_tools.workspace.progress import Reporter, spoken


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is moved: clock[0] is the time."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def lines_of(clock, seconds, counts, total):
    stream = io.StringIO()
    with Reporter(stream).bar(total, "sorting") as update:
        for count in counts:
            clock[0] += seconds
            update(count)
    return stream.getvalue().splitlines()


def test_a_long_stage_says_how_far_it_is(clock):
    lines = lines_of(clock, 40, [25, 25, 25, 25], 100)
    assert [line.split("] ")[1] for line in lines] == [
        "sorting",
        "sorting: 25%, about 2 min left",
        "sorting: 50%, about 80 s left",
        "sorting: 75%, about 40 s left",
    ]


def test_lines_are_few(clock):
    assert [spoken(seconds) for seconds in (3, 600, 9000)] == ["3 s", "10 min", "2.5 h"]
    assert len(lines_of(clock, 0.1, [1] * 100, 100)) == 1, "a short stage has its name alone"
    assert len(lines_of(clock, 3600, [1] * 1000, 1000)) == 10, "a long one speaks at every tenth"


def test_silent_and_on_a_terminal(clock):
    with Reporter().bar(10, "sorting") as update:
        update(10)
    stream = io.StringIO()
    stream.isatty = lambda: True
    with Reporter(stream).bar(10, "sorting") as update:
        update(10)
    assert "sorting" in stream.getvalue() and "100%" in stream.getvalue()
