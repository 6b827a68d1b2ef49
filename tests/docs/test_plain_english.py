"""Prose is plain: subject first, the field's noun, short sentences.

The index counts six patterns that hide the subject of a sentence, per 1,000 words. They are clauses with `what`; `that
of` and `those which`; `of which`; `so many`; `beside`; verbs of speech for programs. Well-kept projects measure 0 to
1.3.

    python -m tests.docs.test_plain_english     # prints the index and the length of sentences of each text
"""

import argparse
import ast
import re
from dataclasses import fields

import pytest

from hpcgnn.__main__ import build_parser
from hpcgnn.options import SECTIONS
from hpcgnn.plan.choices import registry_choices
from partition_tools.cli.main import build_parser as build_tools_parser

from .test_links import PAGES, ROOT

HIDDEN = re.compile(
    r"\bwhat\b(?![^.?\n|]*\?)|\b(?:that|those) (?:of|which|that)\b|\bof (?:which|whom)\b|\bso (?:many|much)\b"
    r"|\bbesides?\b|\b(?:said|told|says|tells)\b",
    re.IGNORECASE,
)
CEILING = 4.0


def prose(text):
    """Markdown or a docstring without code, headings and the targets of links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "X", re.sub(r"^#.*$|\]\([^)]*\)", "", text, flags=re.MULTILINE))


def sentences(text):
    """[number of words] of a text's sentences; cells of tables, items of lists and of Args stand for themselves."""
    parts = re.split(
        r"(?<=[.!?])\s+(?=[A-Z([*])|\||\n\s*\n|\n(?=\s*(?:[*-]|\d+\.|Args:|Returns:|Raises:))|:\n"
        r"|\n(?= {4}[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*: )",  # an entry of Args or Attributes
        prose(text),
    )
    return [len(words) for part in parts if (words := re.findall(r"[A-Za-z][\w'-]*", part))]


def index(text):
    """Hits per 1,000 words."""
    text = prose(text)
    return 1000 * len(HIDDEN.findall(text)) / max(1, len(re.findall(r"[A-Za-z][\w'-]*", text)))


def docstrings(paths):
    """The docstrings of the modules, classes and functions of some files, joined."""
    found = []
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                found.append(text)
    return "\n\n".join(found)


def help_of(parser):
    """The help of a parser and of the commands below it, each text once."""
    found = {parser.description or "", parser.epilog or ""}
    for action in parser._actions:
        found.add(action.help if action.help and action.help != argparse.SUPPRESS else "")
        for below in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            found |= help_of(below)
    return {re.sub(r"^ {2,}.*$", "", text, flags=re.MULTILINE) for text in found}  # without examples and lists


def texts():
    """{name: text} of all that a test below measures."""
    pages = [
        *PAGES,
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "partition_tools/README.md",
        ROOT / "jobs/README.md",
    ]
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages}
    del found["docs/options.md"]  # made of the help
    for part in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        found[f"changelog of {part.split()[0]}"] = part
    for program, parser in (("hpcgnn", build_parser(registry_choices())), ("partition_tools", build_tools_parser())):
        found[f"help of {program}"] = "\n\n".join(sorted(help_of(parser)))
    keys = [declared.metadata for kind in SECTIONS.values() for declared in fields(kind)]
    found["keys of hpcgnn"] = "\n\n".join(f"{key['help']}.\n\n{key['details']}" for key in keys)
    rooms = sorted(path.parent for path in (ROOT / "hpcgnn").glob("*/__init__.py"))
    tests = sorted({path.parent for path in (ROOT / "tests").glob("*/*.py")})
    for room in [*rooms, ROOT / "partition_tools", ROOT / "jobs", *tests]:
        found[str(room.relative_to(ROOT))] = docstrings(room.rglob("*.py"))
    found["files of hpcgnn"] = docstrings((ROOT / "hpcgnn").glob("*.py"))
    found["files of tests"] = docstrings((ROOT / "tests").glob("*.py"))
    return found


TEXTS = texts() if PAGES else {}


@pytest.mark.parametrize("name", TEXTS)
def test_sentences_show_their_subject(name):
    assert index(TEXTS[name]) <= CEILING


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_sentences_are_short(name):
    lengths = sentences(TEXTS[name])
    assert sum(length > 25 for length in lengths) <= max(5, len(lengths) / 20)


if __name__ == "__main__":
    for name, text in TEXTS.items():
        lengths = sentences(text) or [0]
        long, mean = sum(length > 25 for length in lengths), sum(lengths) / len(lengths)
        words = f"{sum(lengths):6} words, {mean:4.1f} in a sentence, at most {max(lengths):3}"
        print(f"{name:32} index {index(text):4.1f}, {words}, over 25: {long} of {len(lengths)}")
