"""A stage in a log has its name, and from time to time a line; on a terminal it has a bar."""

import io

from partition_tools.workspace import progress
from partition_tools.workspace.progress import Reporter


def test_lines_of_a_log_and_a_bar_of_a_terminal(monkeypatch):
    with Reporter().bar(10, "sorting") as update:
        update(10)
    stream = io.StringIO()
    with Reporter(stream).bar(100, "sorting") as update:
        update(100)
    assert len(stream.getvalue().splitlines()) == 1, "a short stage has its name alone"
    monkeypatch.setattr(progress, "SECONDS", 1e-9)
    with Reporter(stream).bar(100, "sorting") as update:
        update(25)
    assert "sorting:  25%|25.0 of 100" in stream.getvalue()
    stream.isatty = lambda: True
    with Reporter(stream).bar(10, "merging") as update:
        update(10)
    assert "merging: 100%|" in stream.getvalue()
