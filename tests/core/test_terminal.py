"""Terminals that lack characters, readers that have gone, full disks: a finished job keeps its exit code."""

import io
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hpcgnn.engine import summary
from hpcgnn.errors import ConfigError
from hpcgnn.terminal import prepare_streams, tell

from .engine.test_result_table import RESULT
from .launching import LIMIT_SECONDS, command_and_environment


@pytest.mark.parametrize("prepared", [True, False])
def test_what_an_encoding_lacks_is_replaced(monkeypatch, prepared):
    for encoding, sign in (("latin-1", b"\xd7"), ("ascii", b"?")):
        out = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", out)
        if prepared:
            prepare_streams()
        tell("a×b –\udce9")
        assert out.buffer.getvalue() == b"a%sb ??\n" % sign


def test_a_full_disk(capsys):
    with open("/dev/full", "w") as out:
        with pytest.raises(ConfigError, match="cannot print the result: No space left on device"):
            tell("text", out, needed=True)
    with open("/dev/full", "w") as out:
        tell("text", out)
    assert "what was to be printed is lost: No space left on device" in capsys.readouterr().err


def test_nothing_to_print_to(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    tell("text")
    prepare_streams()
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    tell("text", closed)


@pytest.mark.parametrize(
    "ending", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("latin-1", "reader gone")), "full, no home"]
)
def test_a_run_ends_well_whatever_takes_its_output(graph, tmp_path, ending):
    """Started without the process that other tests fork their ranks from: the streams are Python's own."""
    words = f"-m hpcgnn train --graph {graph} --run-dir {tmp_path}/r --epochs 2 --hidden 4 --layers 2"
    command, environment = command_and_environment(0, *words.split())
    environment |= {"PYTHONIOENCODING": "latin-1"} if ending == "latin-1" else {}
    environment |= {"HOME": "/nonexistent", "MPLCONFIGDIR": "/proc/none"} if ending == "full, no home" else {}
    done = redirected(command, environment, {"reader gone": "| true", "latin-1": ""}.get(ending, "> /dev/full"))
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert {"summary.json", "curves.png", "metrics.jsonl"} <= {path.name for path in (tmp_path / "r").iterdir()}
    if ending == "latin-1":
        assert b"? ranks \xd7 threads" in done.stdout


def redirected(command, environment, redirect):
    """The result of a command whose standard output a shell has led elsewhere."""
    shell = ["bash", "-c", f'"$@" {redirect}; exit ${{PIPESTATUS[0]}}', "bash", *command]
    return subprocess.run(shell, env=environment, capture_output=True, timeout=LIMIT_SECONDS)


def test_the_result_of_a_command_that_only_prints(graph):
    command, environment = command_and_environment(0, "-m", "partition_tools", "inspect", graph)
    for redirect, code in (("> /dev/full", 2), ("| true", 0)):
        done = redirected(command, environment, redirect)
        assert done.returncode == code and b"Traceback" not in done.stderr, done.stderr
        assert (b"cannot print the result: No space left" in done.stderr) == (code == 2)


def test_what_cannot_be_shown_costs_nothing_else(monkeypatch, capsys, caplog):
    """The table fails: the picture is drawn. The picture fails: the rest is printed."""
    drawn = []
    monkeypatch.setattr(summary, "draw_curves", lambda path: drawn.append(path) or SimpleNamespace(name="curves.png"))
    monkeypatch.setattr(logging.getLogger("hpcgnn"), "propagate", True)
    summary.show_result({name: value for name, value in RESULT.items() if name != "epochs"}, SimpleNamespace(path="r"))
    assert drawn == ["r"] and "curves.png" in capsys.readouterr().out and "no table of the result" in caplog.text

    def fail(path):
        raise PermissionError("no cache\ndirectory")

    monkeypatch.setattr(summary, "draw_curves", fail)
    summary.show_result(RESULT, SimpleNamespace(path="r"))
    out = capsys.readouterr().out
    assert "final loss" in out and out.endswith("results in r/: summary.json, metrics.jsonl\n")
    assert "no curves.png: PermissionError: no cache directory" in caplog.text
