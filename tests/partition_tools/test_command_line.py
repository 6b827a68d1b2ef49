"""`python -m partition_tools` as a user calls it, and real data where it is at hand."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from partition_helpers import odd_graph, save_npz

import partition_tools
from partition_tools.cli import main as command_line
from partition_tools.cli.inspect_graph import inspect_graph
from partition_tools.workspace.progress import Reporter

ROOT = Path(partition_tools.__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"


def call(*words):
    return subprocess.run(
        [sys.executable, "-m", "partition_tools", *map(str, words)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=100,
    )


def test_from_import_to_verify(tmp_path):
    save_npz(tmp_path / "g.npz", *odd_graph(symmetric=True), 60)
    for words in (
        ("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5"),
        ("partition", "add", tmp_path / "g.h5", "--ranks", "1,2,4"),
        ("verify", tmp_path / "g.h5"),
    ):
        done = call(*words)
        assert done.returncode == 0, done.stderr
    bad = call("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    assert bad.returncode == 2 and bad.stderr.startswith("partition_tools: error: ") and bad.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("import",), ("generate",), ("generate", "planted"), ("partition", "add"), ("inspect",), ("verify",), ()]
)
def test_help(capsys, words):
    with pytest.raises(SystemExit) as stop:
        command_line.main([*words, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and len(out) > 200
    assert len(words) != 1 or "Peak memory" in out


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


def test_bars_only_on_a_terminal():
    class Screen(list):
        def __init__(self, terminal):
            self.isatty, self.write, self.flush = lambda: terminal, self.append, lambda: None

    for terminal in (False, True):
        screen = Screen(terminal)
        with Reporter(screen).bar(10, "counting") as progress:
            progress(10)
        assert ("\r" in "".join(screen)) == terminal and "counting" in "".join(screen)


@pytest.mark.parametrize(
    "name, nodes, edges, splits",
    [("cora", 2708, 10556, [140, 500, 1000]), ("facebook", 22470, 341646, [4494, 2247, 15729])],
)
def test_real_data(cli, tmp_path, name, nodes, edges, splits):
    if not (DATA / f"{name}.npz").is_file():
        pytest.skip(f"{DATA / name}.npz is not there")
    path = tmp_path / "g.h5"
    assert cli("import", DATA / f"{name}.npz", "-o", path, "--set", "features.row_normalize=true")[0] == 0
    assert cli("partition", "add", path, "--ranks", "1,4")[0] == 0
    assert cli("verify", path)[0] == 0
    info = inspect_graph(path)
    assert (info["nodes"], info["directed_edges"], info["undirected"]) == (nodes, edges, True)
    assert list(info["splits"].values()) == splits and info["sparse_features"]
    figures = info["partitionings"]["metis"]["4"]
    assert figures["imbalance_nodes"] <= 1.03 and figures["halo_rows_total"] < 0.5 * nodes
    with np.load(DATA / f"{name}.npz") as raw:
        assert info["class_sizes"] == np.bincount(raw["y"]).tolist()
