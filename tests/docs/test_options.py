"""The page of options is what the parsers say now."""

import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_page_is_of_these_options(tmp_path):
    """In a process of its own: other tests register models, which would be choices of --model here."""
    if not PAGE.exists():
        pytest.skip("there is no documentation beside the tests")
    command = [sys.executable, PAGE.with_suffix(".py"), tmp_path / "again.md"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "run `python docs/options.py`"
    )
