"""`python -m partition_tools` as a user calls it, and real data where it is at hand."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from partition_helpers import odd_graph, save_npz

import partition_tools
from partition_tools.cli import main as command_line

ROOT = Path(partition_tools.__file__).parents[1]


def call(*words):
    return subprocess.run(
        [sys.executable, "-m", "partition_tools", *map(str, words)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=100,
    )


def test_a_process(tmp_path):
    save_npz(tmp_path / "g.npz", *odd_graph(symmetric=True), 60)
    done = call("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    assert done.returncode == 0, done.stderr
    bad = call("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    assert bad.returncode == 2 and bad.stderr.startswith("partition_tools: error: ") and bad.stderr.count("\n") == 1


def test_interrupt_and_faults(monkeypatch, capsys):
    def raising(error):
        def run(arguments, reporter):
            raise error

        return run

    monkeypatch.setattr(command_line.inspect_graph, "run", raising(KeyboardInterrupt()))
    assert command_line.main(["inspect", "x"]) == 130 and "interrupted" in capsys.readouterr().err
    monkeypatch.setattr(command_line.inspect_graph, "run", raising(ZeroDivisionError("a fault of ours")))
    with pytest.raises(ZeroDivisionError):
        command_line.main(["inspect", "x"])


def test_no_torch_and_no_mpi():
    """Login nodes may have neither a working MPI nor the memory for torch; and HDF5 is opened in one place only."""
    code = (
        "import sys, partition_tools.cli.main; print([m for m in ('torch', 'mpi4py', 'pandas', 'pymetis') "
        "if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True).stdout.strip() == "[]"
    for file in [*(ROOT / "partition_tools").rglob("*.py"), ROOT / "hpcgnn" / "placement" / "clusters.py"]:
        nodes = list(ast.walk(ast.parse(file.read_text())))
        names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
        names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not {name.split(".")[0] for name in names} & {"torch", "mpi4py", "h5py"}, file
