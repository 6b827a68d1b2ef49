"""The documentation as a site: built strictly, so that a broken link is an error, and complete without a network."""

import importlib.util
import re
import subprocess
import sys

import pytest

from .test_links import SITE

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
