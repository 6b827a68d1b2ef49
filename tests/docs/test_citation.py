"""CITATION.cff and the changelog are of the version that the package says it is."""

import re
from pathlib import Path

import pytest

import hpcgnn

ROOT = Path(__file__).parents[2]
CITATION = ROOT / "CITATION.cff"

pytestmark = pytest.mark.skipif(not CITATION.exists(), reason="there is no CITATION.cff beside the tests")


def test_the_citation_has_what_the_format_requires():
    """The required fields of https://citation-file-format.github.io, 1.2.0, and the version of the package."""
    cff = pytest.importorskip("yaml").safe_load(CITATION.read_text(encoding="utf-8"))
    assert cff["cff-version"] == "1.2.0" and cff["message"] and cff["title"] and cff["authors"]
    assert cff["version"] == hpcgnn.__version__ and re.fullmatch(r"\d{4}-\d\d-\d\d", cff["date-released"])
    assert all({"type", "title", "authors"} <= set(reference) for reference in cff["references"])
    for person in [*cff["authors"], *(author for each in cff["references"] for author in each["authors"])]:
        assert set(person) <= {"name", "family-names", "given-names"}


def test_the_changelog_has_the_version_and_its_date_first():
    cff = pytest.importorskip("yaml").safe_load(CITATION.read_text(encoding="utf-8"))
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    if headings[0] == "Unreleased":  # what the next version will have
        del headings[0]
    assert headings[0] == f"{hpcgnn.__version__} ({cff['date-released']})"


def test_pages_and_recipes_name_the_files_of_this_version():
    for path in (ROOT / "docs" / "installing.md", *(ROOT / "env").rglob("*.eb"), *(ROOT / "env").rglob("package.py")):
        named = set(re.findall(r"hpcgnn-(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8")))
        assert named <= {hpcgnn.__version__}, path
