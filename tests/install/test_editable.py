"""The editable installation of this checkout, as `env/setup.sh` makes it."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_folders_of_these_names_beside_a_script(tmp_path):
    """Such as a checkout. Python then found the folders, as packages without code."""
    try:
        source = importlib.metadata.distribution("hpcgnn").read_text("direct_url.json") or "{}"
    except importlib.metadata.PackageNotFoundError:
        source = "{}"
    if json.loads(source).get("url") != ROOT.as_uri():
        pytest.skip("this checkout is not installed as editable")
    names = ("hpcgnn", "partition_tools")
    for name in names:
        (tmp_path / name).mkdir()
    script = tmp_path / "script.py"
    script.write_text(f"import {', '.join(names)}; print(hpcgnn.__file__, partition_tools.__file__)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    found = subprocess.check_output([sys.executable, script], cwd=tmp_path, env=environment, text=True)
    assert found.split() == [str(ROOT / name / "__init__.py") for name in names]
