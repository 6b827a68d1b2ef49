"""CITATION.cff and the changelog have the version of the package."""

import re

import pytest
from pages import ROOT

import hpcgnn

CITATION = ROOT / "CITATION.cff"

pytestmark = pytest.mark.skipif(not CITATION.exists(), reason="there is no CITATION.cff beside the tests")


def test_the_changelog_and_the_citation_have_the_version_and_its_date():
    cff = pytest.importorskip("yaml").safe_load(CITATION.read_text(encoding="utf-8"))
    assert cff["version"] == hpcgnn.__version__ and re.fullmatch(r"\d{4}-\d\d-\d\d", cff["date-released"])
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    if headings[0] == "Unreleased":  # what the next version will have
        del headings[0]
    assert headings[0] == f"{hpcgnn.__version__} ({cff['date-released']})"


def test_pages_and_recipes_name_the_files_of_this_version():
    for path in (ROOT / "docs" / "installing.md", *(ROOT / "env").rglob("package.py")):
        named = set(re.findall(r"hpcgnn-(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8")))
        assert named <= {hpcgnn.__version__}, path
