"""Figures of the comparison stand in three places: the data, the table of all, and the short one of the README."""

import csv
import runpy

import pytest
from pages import ROOT

DATA = ROOT / "jobs" / "results" / "compare.csv"

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="there are no results beside the tests")


@pytest.fixture(scope="module")
def rows():
    with open(DATA, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(path, heading):
    """[[cell, ...]] of the first table of a page whose heading line has this text."""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("|") and heading in line:
            next(lines)
            break
    found = []
    for line in lines:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_table_of_all_has_the_data(rows):
    shown = table(ROOT / "docs" / "performance.md", "| page faults |")
    assert len(shown) == len(rows)
    for cells, row in zip(shown, rows):
        spread = f" ({row['seconds_share_min']} to {row['seconds_share_max']})" if row["seconds_share_min"] else ""
        ours = row["system"] == "hpcgnn"
        assert cells == [
            row["model"],
            f"{row['ranks']} × {row['threads']}" if ours else row["system"],
            row["seconds"],
            (f"**{row['seconds_share']}**" if ours else row["seconds_share"]) + spread,
            row["processor_seconds"],
            row["processor_share"],
            f"{int(row['memory_mb']):,}",
            row["memory_share"],
            f"{int(row['page_faults']):,}",
        ]


def test_shares_are_of_the_same_figures(rows):
    """A share is a median of ratios, so it may differ a little from the ratio of medians."""
    theirs = {row["model"]: row for row in rows if row["system"] == "DGL"}
    for row in rows:
        for figure in ("seconds", "processor_seconds", "memory_mb"):
            share = float(row[figure]) / float(theirs[row["model"]][figure])
            assert share == pytest.approx(float(row[f"{figure.partition('_')[0]}_share"]), abs=0.011)


def test_the_readme_has_the_same_figures(rows):
    ours = {(row["model"], int(row["ranks"])): row for row in rows if row["system"] == "hpcgnn"}
    for cells in table(ROOT / "README.md", "as a share of DGL's"):
        one, eight = ours[cells[0], 1], ours[cells[0], 8]
        shares = [ranks[share] for share in ("seconds_share", "memory_share") for ranks in (one, eight)]
        assert cells[1:] == shares


@pytest.mark.parametrize("name, files", [("comparison", ["comparison"]), ("drawings", ["blocks", "memory", "rounds"])])
def test_pictures_are_of_this_data_and_code(tmp_path, name, files):
    """To the byte, if the same matplotlib drew them."""
    matplotlib = pytest.importorskip("matplotlib")
    draw = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))["draw"]  # docs/ is no package
    draw(tmp_path / "comparison.svg" if name == "comparison" else tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == files
    for path in tmp_path.iterdir():
        text = (ROOT / "docs" / "pictures" / path.name).read_text(encoding="utf-8")
        if f"Matplotlib v{matplotlib.__version__}," not in text:
            pytest.skip("the picture was drawn by another version of matplotlib")
        assert path.read_text(encoding="utf-8") == text, f"run `python docs/{name}.py`"
