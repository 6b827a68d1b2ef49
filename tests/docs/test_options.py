"""The page of options equals the help of the parsers."""

import subprocess
import sys

from pages import ROOT, read


def test_the_page_is_of_these_options(tmp_path):
    """In a process of its own: other tests register models, which would be choices of --model here."""
    page, command = read("options.md"), [sys.executable, ROOT / "docs" / "options.py", tmp_path / "again.md"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.md").read_text(encoding="utf-8") == page, "run `python docs/options.py`"
