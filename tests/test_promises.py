"""Each promise of promises.toml is proven by tests that are there, and that the quick lane runs."""

import ast
import tomllib
from pathlib import Path

import cover
import pytest

ROOT = Path(__file__).parents[1]
PROMISES = tomllib.loads((ROOT / "tests" / "promises.toml").read_text())["promise"]
TESTS = [test for promise in PROMISES for test in promise["tests"]]


@pytest.mark.parametrize("test", TESTS)
def test_it_is_there(test):
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, "no such test"


def test_a_test_with_slow_cases_alone_is_found():
    """The run of the quick lane holds it, when it has collected the cases (conftest.py)."""
    assert cover.only_slow({TESTS[0]: [True, True], TESTS[1]: [True, False], "tests/any.py::test": [True]}) == TESTS[:1]


def test_each_promise_stands_once():
    says = [promise["says"] for promise in PROMISES]
    assert len(set(says)) == len(says)
