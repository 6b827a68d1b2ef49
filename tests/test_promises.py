"""Each promise of promises.toml is proven by tests that are there, and that the quick lane runs."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES = tomllib.loads((ROOT / "tests" / "promises.toml").read_text())["promise"]


def is_slow(tree, name):
    """Whether a test, or its file, has the mark of the slow lane. Raises StopIteration where there is no such test."""
    test = next(each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name)
    marks = [
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and getattr(each.targets[0], "id", "") == "pytestmark"
    ]
    # Of a parametrization some cases may be slow.
    own = [each for each in test.decorator_list if not ast.unparse(each).startswith("pytest.mark.parametrize")]
    return any("mark.slow" in ast.unparse(each) for each in (*marks, *own))


@pytest.mark.parametrize("test", [test for promise in PROMISES for test in promise["tests"]])
def test_it_is_proven_in_the_quick_lane(test):
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, "no such test"
    assert not is_slow(tree, name)


def test_each_promise_stands_once():
    says = [promise["says"] for promise in PROMISES]
    assert len(set(says)) == len(says)
