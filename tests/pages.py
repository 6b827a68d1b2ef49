"""Blocks of code on pages, for tests that run them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def read(name):
    """The text of a page of docs/. Skips where the tests come without documentation."""
    path = ROOT / "docs" / name
    if not path.exists():
        pytest.skip("there is no documentation beside the tests")
    return path.read_text(encoding="utf-8")


def blocks(text, language):
    """The blocks of a language in a text of Markdown."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def example(name, words):
    """The one block of Python with these words on a page."""
    (found,) = (block for block in blocks(read(name), "python") if words in block)
    return found


def run(name, words):
    """The names that this block leaves."""
    names = {}
    exec(example(name, words), names)
    return names
