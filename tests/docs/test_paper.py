"""Every table of the performance page has a date and a command that makes it again: jobs/bench/paper.sh."""

import importlib.util
import re
import sys

import pytest

from .test_links import ROOT

BENCH = ROOT / "jobs" / "bench"
PAGE = """# Page

```bash
echo 3 > g.h5
```

## A section

| a | b |
|---|---|
| 1 | 2 |

```bash
cat g.h5 data.npz
{last}
```

## Another, without commands
"""

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


@pytest.fixture(scope="module")
def paper():
    return load()


def test_every_table_has_a_date_and_a_command(paper):
    text = paper.PAGE.read_text(encoding="utf-8")
    bodies = re.split(r"^(?=##+ )", text, flags=re.MULTILINE)
    for section, body in zip(paper.sections(text)[1:], bodies[1:], strict=True):
        if section.tables:
            assert section.blocks and re.search(r"2026-\d\d-\d\d", body), section.name


@pytest.mark.parametrize("last, code", [("echo done", 0), ("false", 1)])
def test_a_section_is_made_in_its_folder(paper, tmp_path, monkeypatch, last, code):
    """With its output, machine and date; a command that fails is reported."""
    (tmp_path / "page.md").write_text(PAGE.format(last=last))
    (tmp_path / "data.npz").write_text("7\n")
    monkeypatch.setattr(paper, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(sys, "argv", ["paper.sh", "--out", f"{tmp_path}/out", "--inputs", str(tmp_path)])
    assert paper.main() == code
    table = (tmp_path / "out" / "a-section" / "table.md").read_text()
    assert "3\n7\n" in table and re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d, .* cores, commit", table)
    assert ("ended with code 1" in table) == bool(code) and not (tmp_path / "out" / "another-without-commands").exists()
