"""Every file that names the version, a date or the authors names the same; a release writes and tags them."""

import json
import re
import shutil
import subprocess
import sys

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


def test_codemeta_and_the_paper_say_the_same():
    yaml = pytest.importorskip("yaml")
    cff = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    meta = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    assert (meta["version"], meta["dateModified"]) == (cff["version"], cff["date-released"])
    assert meta["license"].endswith(cff["license"]) and meta["keywords"] == cff["keywords"]
    assert [author["name"] for author in meta["author"]] == [author["name"] for author in cff["authors"]]
    _, head, body = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8").split("---\n", 2)
    paper = yaml.safe_load(head)
    assert (paper["title"], paper["authors"], paper["tags"]) == (cff["title"], cff["authors"], cff["keywords"])
    known = re.findall(r"@\w+{(\w+),", (ROOT / "docs" / "paper" / paper["bibliography"]).read_text(encoding="utf-8"))
    assert sorted(set(re.findall(r"\[@(\w+)\]", body))) == sorted(known)


def test_the_figures_of_the_paper_stand_in_performance():
    measured = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8").partition("# Measurements")[2]
    figures = set(re.findall(r"\d+(?:[.,]\d+)*", measured))
    assert len(figures) > 10
    assert not [f for f in figures if f not in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")]


def release(folder, *words):
    return subprocess.run([sys.executable, "env/release.py", *words], cwd=folder, capture_output=True, text=True)


def test_a_release_writes_the_version_everywhere_and_tags_it(tmp_path):
    sources = ["hpcgnn/__init__.py", "CHANGELOG.md", "CITATION.cff", "codemeta.json", "env", "docs/installing.md"]
    for name in sources:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "before"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n### Added\n")
    done = release(tmp_path, hpcgnn.__version__)
    assert done.returncode == 1 and f"after {hpcgnn.__version__}, got" in done.stderr
    done = release(tmp_path, "99.0.0")
    assert done.returncode == 0, done.stderr
    date = re.fullmatch(r"## 99.0.0 \((.*)\)\n\n### Added\n", (tmp_path / "CHANGELOG.md").read_text()).group(1)
    for name in ("CITATION.cff", "codemeta.json"):
        text = (tmp_path / name).read_text()
        assert "99.0.0" in text and date in text
    kept = subprocess.run(["grep", "-rlF", hpcgnn.__version__, "."], cwd=tmp_path, capture_output=True, text=True)
    assert {path for path in kept.stdout.split() if ".git/" not in path} <= {"./env/constraints.txt"}
    subprocess.run([*git, "commit", "-qam", "release"], cwd=tmp_path, check=True)
    environment = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.example"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        for words in (["--tags", "--dry-run"], ["--tags"], ["--tags"]):
            done = release(tmp_path, *words)
            assert done.returncode == 0, done.stderr
    assert done.stdout == ""  # both have their tags
    tags = subprocess.run(["git", "tag", "--list"], cwd=tmp_path, capture_output=True, text=True).stdout.split()
    assert tags == sorted([f"v{hpcgnn.__version__}", "v99.0.0"])
    named = subprocess.run(["git", "log", "-1", "--format=%s", "v99.0.0"], cwd=tmp_path, capture_output=True, text=True)
    assert named.stdout == "release\n"


def test_pages_and_recipes_name_the_files_of_this_version():
    for path in (ROOT / "docs" / "installing.md", *(ROOT / "env").rglob("package.py")):
        named = set(re.findall(r"hpcgnn-(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8")))
        assert named <= {hpcgnn.__version__}, path
