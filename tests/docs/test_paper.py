"""Every table of the performance page has a date and a command that makes it again: jobs/bench/paper.sh."""

import importlib.util
import re
import sys

import pytest

from .test_links import ROOT

BENCH = ROOT / "jobs" / "bench"
pytestmark = [pytest.mark.skipif(not BENCH.is_dir(), reason="there are no benches beside the tests"), pytest.mark.slow]


def load():
    """The module behind paper.sh."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        found = importlib.util.spec_from_file_location("paper", BENCH / "paper.py")
        module = importlib.util.module_from_spec(found)
        patch.setitem(sys.modules, "paper", module)
        found.loader.exec_module(module)
    return module


def test_every_table_has_a_date_and_a_command():
    paper = load()
    text = paper.PAGE.read_text(encoding="utf-8")
    head = text.partition("\n## ")[0]
    assert re.search(r"on 20\d\d-\d\d-\d\d, on a ", head), "the day and the machine of all tables that name no other"
    for section in paper.sections(text)[1:]:
        assert section.blocks or not section.tables, section.name
