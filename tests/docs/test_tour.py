"""The tour of docs/quickstart.md, run as it stands there by a shell in which the environment is active."""

import csv
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
    with open(tmp_path / "runs" / "tour" / "predictions.csv", newline="", encoding="utf-8") as file:
        said = {row["id"]: row["class_name"] for row in csv.DictReader(file)}
    with open(tmp_path / "docs" / "tour" / "clubs.csv", newline="", encoding="utf-8") as file:
        right = [said[row["id"]] == row["club"] for row in csv.DictReader(file)]
    assert len(right) == 34 and sum(right) > 24
    for made in ("clubs.png", "first/curves.png", "report/report.html"):
        assert (tmp_path / "runs" / "tour" / made).stat().st_size > 0
