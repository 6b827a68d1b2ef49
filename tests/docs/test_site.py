"""The documentation as a site: built strictly, so that a broken link is an error, and complete without a network."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest

from .test_links import PAGES, SITE

pytestmark = pytest.mark.slow  # test_links.py holds the links in the quick lane


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    if not SITE.exists():
        pytest.skip("there is no documentation beside the tests")
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings_handlers") is None:
        pytest.skip("mkdocs or mkdocstrings is missing: `bash env/docs.sh` brings both; test_links.py checks links")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", SITE, "--site-dir", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_fetched_when_it_is_read(site):
    """Links may lead elsewhere; scripts, styles, fonts and pictures may not."""
    fetched = []
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        fetched += re.findall(r'src="(?:https?:)?//[^"]*"', text)
        fetched += re.findall(r'<link(?![^>]*rel="canonical")[^>]*href="(?:https?:)?//[^"]*"', text)
    for path in site.rglob("*.css"):
        fetched += re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", path.read_text(encoding="utf-8"))
    assert not fetched


def test_the_index_of_the_search_is_a_script_with_every_page(site):
    """Browsers refuse workers and requests on pages that are opened from the file system."""
    text = (site / "search" / "index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var searchIndex = ").removesuffix(";\n"))
    assert {page["location"] for page in index["docs"]} >= {f"{path.stem}.html" for path in PAGES}
    results = (site / "search.html").read_text(encoding="utf-8")
    scripts = re.findall(r'<script src="([^"]*)"', results)
    assert scripts[-3:] == ["search/lunr.js", "search/index.js", "site/search.js"]
    for script in scripts[-3:]:
        assert not re.search(r"\bWorker\b|XMLHttpRequest|\bfetch\(", (site / script).read_text(encoding="utf-8"))
    assert sorted(path.name for path in site.glob("search/*")) == ["index.js", "lunr.js"]


def test_every_page_has_the_box_for_the_search(site):
    for page in PAGES:
        text = (site / f"{page.stem}.html").read_text(encoding="utf-8")
        assert text.count('action="./search.html"') == 2, page.stem  # in the side bar, and in the bar on top


def test_a_browser_finds_words_from_the_file_system(site):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium")
    address = f"{(site / 'search.html').as_uri()}?q=halo+buffer"
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    found = re.findall(r'<article><h3><a href="([^"]*)"', shown)
    assert [link for link in found[:10] if link.startswith("how-it-works.html#")]
