"""Every table of the performance page has a command that makes it again, or a reason: jobs/bench/paper.sh."""

import importlib.util
import re
import subprocess
import sys
import tomllib

import numpy as np
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


@pytest.fixture(scope="module")
def paper():
    return load()


@pytest.fixture(scope="module")
def listed():
    return tomllib.loads((BENCH / "paper.toml").read_text(encoding="utf-8"))


def test_every_table_has_a_command_or_a_reason(paper, listed):
    found = paper.sections(paper.PAGE.read_text(encoding="utf-8"))
    assert [section.name for section in found] == list(listed["sections"])
    for section in found:
        of_section = listed["sections"][section.name]
        assert len(section.tables) == of_section["tables"], section.name
        assert bool(section.blocks) != ("reason" in of_section), section.name


def test_tables_of_other_pages_have_commands_or_a_reason(paper, listed):
    for page, reasons in listed["pages"].items():
        found = paper.sections((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
        assert [section.name for section in found if not section.blocks] == list(reasons), page
    assert "* docs/kernels.md: by commands aarch64, whose-products. Without: layers: rules" in "\n".join(
        paper.of_other_pages(listed["pages"])
    )


def test_graphs_that_a_section_names_are_made(paper, listed):
    for section in paper.sections(paper.PAGE.read_text(encoding="utf-8")):
        of_section = listed["sections"][section.name]
        text = "".join(section.blocks)
        read = set(re.findall(r"\b(g1|g2|r2m)\.h5", text))
        assert {f"{name}.h5" for name in read} == set(of_section.get("graphs", ())), section.name
        assert set(re.findall(r"\b(\w+\.npz)", text)) == set(of_section.get("inputs", ())), section.name
    page = paper.PAGE.read_text(encoding="utf-8")
    for name in ("g1.h5", "g2.h5"):
        line = next(line for line in listed["graphs"][name]["make"].splitlines() if "generate" in line)
        assert f"`{line.removeprefix('python -m partition_tools ')}`" in page


def test_a_graph_is_made_before_it_is_read(paper, listed):
    """In the order of a section's blocks, whose first commands may stand far above the others."""
    for section in paper.sections(paper.PAGE.read_text(encoding="utf-8")):
        of_section = listed["sections"][section.name]
        there = {*of_section.get("graphs", ()), *of_section.get("inputs", ())}
        for line in "".join(section.blocks).replace("\\\n", " ").splitlines():
            read = re.search(r"--graph((?: [\w.-]+\.h5)+)", line)
            assert set(read[1].split() if read else ()) <= there, f"{section.name}: {line}"
            for name in re.findall(r'(?:-o |save_graph\()"?([\w.$-]+\.h5)', line):
                there |= {name.replace("$kind", kind) for kind in ("rmat", "planted")}


def test_quick_changes_meet_their_commands(paper, listed):
    """A change of nothing is a mistake; of those for all sections each meets some command."""
    found = {section.name: "".join(section.blocks) for section in paper.sections(paper.PAGE.read_text("utf-8"))}
    for name, of_section in listed["sections"].items():
        text = paper.changed(found[name], listed["graphs"]["quick_all"])
        assert all(old in text for old, _ in of_section.get("quick", ())), name
    assert all(any(old in text for text in found.values()) for old, _ in listed["graphs"]["quick_all"])


def test_a_section_is_made_in_its_folder(tmp_path):
    """With its output, machine, date and the rows that were not made."""
    command = ["bash", BENCH / "paper.sh", "--quick", "--only", "products", "--out", tmp_path / "paper"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "paper" / "products" / "table.md").read_text()
    assert "GFLOP/s" in table and re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d, .* cores, commit", table)
    summary = (tmp_path / "paper" / "summary.md").read_text()
    assert "| products | made |" in summary and "other-figures: it has links alone" in summary
    assert "* products: rows of vector paths that this processor has not" in summary


def test_every_section_with_commands_has_a_quick_form(paper, listed, tmp_path):
    """So that --quick tries all commands. A small graph stands in for a data set."""
    assert all(("quick" in of_section) != ("reason" in of_section) for of_section in listed["sections"].values())
    paper.stand_in(tmp_path / "cora.npz")
    with np.load(tmp_path / "cora.npz") as found:
        assert (found["train_mask"].astype(int) + found["val_mask"] + found["test_mask"] == 1).all()
        same = found["y"][found["edge_index"]]
        assert 0.5 < (same[0] == same[1]).mean() < 0.75 and set(found["y"]) == {0, 1, 2, 3}
