"""Numbers in a line of text, short however many there are."""

from collections.abc import Iterable


def ranges(numbers: Iterable[int], separator: str = ", ", most: int | None = 6, joined: bool = True) -> str:
    """'0-2, 5' of 0, 1, 2, 5: increasing numbers, with neighbours joined to ranges.

    most: ranges that are written, the rest is counted (' and 2 more ranges'); None: all. joined: False writes every
    number by itself (' and 2 more').
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if joined and runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    shown = separator.join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:most])
    left = 0 if most is None else len(runs) - most
    return shown + (f" and {left} more{' ranges' if joined else ''}" if left > 0 else "")


def every(numbers: Iterable[int]) -> str:
    """'0-2,5' of 0, 1, 2, 5: all of them, as batch systems write cores."""
    return ranges(numbers, ",", None)
