"""Numbers in a line: every one is in it or counted, and the line stays short."""

import pytest

from hpcgnn.word_list import ranges

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
