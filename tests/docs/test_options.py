"""The page of options equals the help of the parsers."""

from core.forked import start
from pages import ROOT, read


def test_the_page_is_of_these_options(tmp_path):
    """In a process of its own: other tests register models, which would be choices of --model here."""
    done = start(0, ROOT / "docs" / "options.py", tmp_path / "again.md")
    assert done.code == 0, done.err
    assert (tmp_path / "again.md").read_text(encoding="utf-8") == read("options.md"), "run `python docs/options.py`"
