"""Quotations of docs/troubleshooting.md are messages of the program."""

import ast
import re

from pages import ROOT, read


def texts_of_the_program():
    """Every text constant of the sources, in which adjacent literals are joined, one after another."""
    sources = [path for folder in ("hpcgnn", "partition_tools") for path in (ROOT / folder).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources]
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(value for value in constants if isinstance(value, str))


def test_quoted_messages_are_those_of_the_program():
    rows = [line for line in read("troubleshooting.md").splitlines() if line.startswith("|")]
    quoted = {words for line in rows for words in re.findall(r'"([^"]+)"', line.split("|")[1])}
    said = texts_of_the_program()
    assert len(quoted) > 12
    assert not [words for words in sorted(quoted) if words not in said]
