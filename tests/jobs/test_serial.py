"""jobs/bench/threads/serial.py: the serial time and the regions of an epoch, for any number of threads."""

from pathlib import Path

from core.forked import start

SCRIPT = Path(__file__).parents[2] / "jobs" / "bench" / "threads" / "serial.py"


def test_regions_of_several_threads_are_counted(graph):
    done = start(0, SCRIPT, "--graph", graph, "--threads", "2", "--epochs", "1", "--warm", "1", "--", "--hidden", "16")
    assert done.code == 0, done.err
    title, heading, line = done.out.splitlines()
    assert title.startswith("sage") and heading.split()[0] == "threads"
    threads, _, serial, _, regions, *_ = map(float, line.split())
    assert threads == 2 and serial > 0 and regions >= 3, line
