"""The tour of docs/quickstart.md, run as it stands there by a shell with the environment active, and its notebook."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from core import launching
from pages import ROOT, blocks, read


@pytest.mark.slow
def test_the_tour(tmp_path):
    for library in ("matplotlib", "pandas", "networkx"):
        pytest.importorskip(library)
    text = read("quickstart.md")
    (block,) = (block for block in blocks(text, "bash") if "docs/tour" in block)
    shutil.copytree(ROOT / "docs" / "tour", tmp_path / "docs" / "tour")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = launching.clean_environment(PATH=path, MPLBACKEND="Agg")
    done = subprocess.run(
        ["bash", "-e", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_predictions(tmp_path / "runs" / "tour")
    for made in ("clubs.png", "first/curves.png", "report/report.html"):
        assert (tmp_path / "runs" / "tour" / made).stat().st_size > 0


def check_predictions(folder):
    """Most members of a run in a folder are predicted to be in their club."""
    with open(folder / "predictions.csv", newline="", encoding="utf-8") as file:
        said = {row["id"]: row["class_name"] for row in csv.DictReader(file)}
    with open(folder / "clubs.csv", newline="", encoding="utf-8") as file:
        right = [said[row["id"]] == row["club"] for row in csv.DictReader(file)]
    assert len(right) == 34 and sum(right) > 24


def test_the_notebook_has_the_commands_of_the_page():
    cells = json.loads((ROOT / "docs" / "tour" / "tour.ipynb").read_text())["cells"]
    lines = [line.strip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]]
    (block,) = (block for block in blocks(read("quickstart.md"), "bash") if "docs/tour" in block)
    commands = [line for line in block.strip().splitlines() if not line.startswith(("mkdir", "python plot.py"))]
    assert [line[1:] for line in lines if line.startswith(("!python", "!mpiexec", "!hpcgnn"))] == commands
    assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.slow
def test_the_notebook(tmp_path, monkeypatch):
    client = pytest.importorskip("nbclient")
    for library in ("ipykernel", "matplotlib", "pandas", "networkx"):
        pytest.importorskip(library)
    shutil.copytree(ROOT / "docs" / "tour", tmp_path / "tour")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    import nbformat

    notebook = nbformat.read(tmp_path / "tour" / "tour.ipynb", as_version=4)
    nbformat.validate(notebook)
    client.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path / "tour"}}).execute()
    check_predictions(tmp_path / "tour" / "run")
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("image/png" in output["data"] for output in shown) == 2
