"""Numbers in a line: every one is in it or counted, and the line stays short."""

import pytest
from hypothesis import given, strategies

from hpcgnn.listing import every, ranges

CASES = {
    "none": ([], {}, ""),
    "one": ([7], {}, "7"),
    "two that follow": ([7, 8], {}, "7-8"),
    "a gap": ([0, 1, 2, 5], {}, "0-2, 5"),
    "apart": ([0, 2, 4], {}, "0, 2, 4"),
    "no blank": ([0, 1, 3], {"separator": ","}, "0-1,3"),
    "as many as may be": ([0, 2, 4], {"most": 3}, "0, 2, 4"),
    "one more": ([0, 2, 4, 5], {"most": 2}, "0, 2 and 1 more ranges"),
    "six if nothing is said": (range(0, 18, 2), {}, "0, 2, 4, 6, 8, 10 and 3 more ranges"),
    "by themselves": ([0, 1, 2], {"joined": False}, "0, 1, 2"),
    "by themselves, and more": (range(6), {"most": 4, "joined": False}, "0, 1, 2, 3 and 2 more"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_printed_form(case):
    numbers, form, text = CASES[case]
    assert ranges(numbers, **form) == text


@given(strategies.sets(strategies.integers(0, 200)))
def test_no_number_is_lost_or_invented(numbers):
    said = set()
    for part in every(sorted(numbers)).split(",") if numbers else []:
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == numbers


@given(strategies.sets(strategies.integers(0, 200)), strategies.integers(1, 8))
def test_what_is_not_written_is_counted(numbers, most):
    whole = every(sorted(numbers)).split(",")
    shown, _, rest = ranges(sorted(numbers), ",", most).partition(" and ")
    assert shown.split(",") == whole[:most]
    assert rest == (f"{len(whole) - most} more ranges" if len(whole) > most else "")
