"""Few cases of a test that together have all values of its parameters, or all pairs of them."""

import functools
import itertools
import tomllib
import zlib
from pathlib import Path

HERE = Path(__file__).parent
#: The axis of the number of ranks.
RANKS = "ranks"


def cover(cases, strength, cost=lambda name: 0):
    """Some names of cases that together have every combination of the values of `strength` axes, and every value.

    cases: {name: {axis: value}}; the axis RANKS, if there is one, is in no combination. cost(name): a number. Greedy:
    next is the case with most combinations that lack, of several one of the least cost. Of these the name with the
    largest hash is next, so that no axis follows another.
    """
    lacking = {}
    for name, values in cases.items():
        others = sorted((axis, value) for axis, value in values.items() if axis != RANKS)
        lacking[name] = set(itertools.combinations(others, min(strength, len(others)))) | {(RANKS, values.get(RANKS))}
    hashes = {name: zlib.crc32(str(name).encode()) for name in cases}
    chosen = set()
    while lacking:
        name = max(lacking, key=lambda each: (len(lacking[each]), -cost(each), hashes[each]))
        new = lacking.pop(name)
        if not new:
            break
        chosen.add(name)
        for combinations in lacking.values():
            combinations -= new
    return chosen


def axes(item):
    """{number of a parametrization: the name of its value} of a test of pytest."""
    return dict(enumerate(item.callspec._idlist)) if hasattr(item, "callspec") else {}


def test_of(item):
    """The name of a test without its case, as promises.toml has it."""
    return item.nodeid.partition("[")[0]


def group(item):
    """(the name of a test, whether the case is slow): such cases are chosen together. A lane leaves the cases of the
    other out, and they cover no value for it.
    """
    return test_of(item), item.get_closest_marker("slow") is not None


def strength(item):
    """2 for a test of a promise, of kernels, and one with the mark `pairs`; else 1."""
    pairs = (
        item.get_closest_marker("pairs") or test_of(item) in _promised() or test_of(item).startswith("tests/kernels/")
    )
    return 2 if pairs else 1


def only_slow(collected):
    """Names of tests of a promise that have slow cases alone. collected: {name: [whether each case is slow]}."""
    return sorted(name for name in collected if all(collected[name]) and name in _promised())


@functools.cache
def _promised():
    """Names of the tests that prove a promise."""
    promises = tomllib.loads((HERE / "promises.toml").read_text())["promise"]
    return {name for promise in promises for name in promise["tests"]}
