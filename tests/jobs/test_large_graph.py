"""The benchmark of large graphs at a small size, whose edges still do not fit the memory that the tools are given."""

import csv
import sys

import pytest
from slurm_helpers import ROOT, call

pytestmark = pytest.mark.slow


def test_a_graph_larger_than_the_memory_is_imported_partitioned_and_trained(tmp_path):
    pytest.importorskip("kaminpar", reason="needs the extra kaminpar")
    command = [sys.executable, ROOT / "jobs/bench/preparation/large_graph.py", "--folder", tmp_path / "work"]
    command += ["--edges", "8e6", "--memory", "64M", "--memory-limit", "3G", "--ranks", "2", "--clusters", "64"]
    command += ["--train-ranks", "2", "--method", "kaminpar", "--keep", "--output", tmp_path / "found.csv"]
    done = call([*command, "--predict", "1e9"], limit=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "found.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["raw", "import", "partition", "train"]
    assert all(float(row["seconds"]) > 0 and int(row["anonymous"]) > 1e6 and row["code"] == "0" for row in rows)
    logs = {row["step"]: (tmp_path / "work" / "8e+06" / f"{row['step']}.log").read_text() for row in rows}
    assert "merging" in logs["import"], "the edges went through files"
    assert "into 8 parts" in logs["partition"], "the whole graph was split on disk"
    assert "hours" in done.stdout
    sound = [sys.executable, "-m", "partition_tools", "verify", tmp_path / "work" / "8e+06" / "partitioned.h5"]
    assert call(sound).returncode == 0
