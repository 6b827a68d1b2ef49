"""The example of docs/meshes.md, small, and the program of the page on the graph that it leaves."""

import runpy
import subprocess
import sys

import h5py
import pytest
from pages import ROOT, example, read

pytestmark = pytest.mark.slow


def test_heat_is_solved_learned_and_drawn(tmp_path, monkeypatch):
    read("meshes.md")
    options = ["--side", "9", "--times", "5", "--epochs", "2"]
    for _ in range(2):  # a second run takes the place of the first
        monkeypatch.setattr(sys, "argv", ["heat.py", str(tmp_path), *options])
        runpy.run_path(str(ROOT / "docs/heat/heat.py"), run_name="__main__")
    with h5py.File(tmp_path / "forecast.h5") as file:
        assert file["snapshots/u"].shape == (4, 81, 1) and file["position"].shape == (81, 2)
    assert all((tmp_path / name).stat().st_size for name in ("forecast-fields.png", "forecast.png", "forecast.xdmf"))
    # One write for a line: the launcher joins the pieces of several ranks as they come.
    line = """print(f"{int(graph.total(torch.tensor([len(e), len(x)]))[0])}\\n", end="")"""
    program = example("meshes.md", "graph.update_edges") + line
    (tmp_path / "program.py").write_text(program)
    command = ["mpiexec", "-n", "2", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == [str(2 * 2 * 9 * 8)] * 2, done.stderr
