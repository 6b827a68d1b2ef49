"""Series that coincide in a figure: one of them stays, under the names of all.

Exact methods give the same losses on any number of ranks, and the same bytes under any cap. Drawn separately, the last
curve would hide the others, and the legend would name invisible curves.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


POINTS_PER_INCH = 72


def lay_out(figure: "Figure") -> None:
    """Give the axes of a figure their places on the sheet."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def merge_coinciding(axis: "Axes", series: Mapping[str, list[Any]]) -> list[str]:
    """Remove lines that coincide with an earlier one within the drawn width, and give that one their names.

    The names become the labels of the legend. Bars and bands of a removed line stay, in the colour of the remaining
    line. A line stays if all its points lie on a longer one, and its label then names that one.

    Args:
        axis: an axis with final limits and scales, laid out (`lay_out`).
        series: {name: [Line2D, its bars and bands]}.

    Returns:
        sentences about the merged lines.
    """
    said, lines = [], {name: artists[0] for name, artists in series.items()}
    places = {name: _places(line) for name, line in lines.items()}
    left: dict[str, list[str]] = {}
    for name, line in lines.items():
        same = next((first for first in left if _same(places[first], places[name], line.get_linewidth())), None)
        if same is None:
            left[name] = [name]
            continue
        left[same].append(name)
        line.remove()
        for artist in series[name][1:]:
            artist.set_color(lines[same].get_color())
    for name, names in left.items():
        lines[name].set_label(_joined(names))
        for artist in (artist for one in names for artist in series[one][1:] if artist.get_alpha()):
            artist.set_alpha(artist.get_alpha() / len(names))  # several bands on one place are as light as one
        if len(names) > 1:
            said.append(f"{_joined(names)}: one line, since they coincide within its width.")
    for name, names in left.items():
        longer = next((one for one in left if one != name and _within(places[name], places[one], lines[name])), None)
        if longer is not None:
            lines[name].set_label(f"{_joined(names)} (lies on {_joined(left[longer])})")
            said.append(f"{_joined(names)} lies on {_joined(left[longer])}.")
    return said


def _places(line: "Line2D") -> np.ndarray:
    """Return the drawn points of a line on the sheet, float64 (n, 2) in points of 1/72 inch."""
    places = line.axes.transData.transform(np.column_stack([np.asarray(x, float) for x in line.get_data()]))
    return places[np.isfinite(places).all(1)] * (POINTS_PER_INCH / line.axes.figure.dpi)


def _same(one: np.ndarray, other: np.ndarray, width: float) -> bool:
    return len(one) == len(other) > 0 and bool((np.abs(one - other) <= width).all())


def _within(few: np.ndarray, many: np.ndarray, line: "Line2D") -> bool:
    """Whether all of a short line's points lie on points of one that has more."""
    if not 0 < len(few) < min(len(many), 65):  # points of long lines lie between the points of the other
        return False
    apart = np.abs(few[:, None] - many[None]).max(2)
    return bool((apart.min(1) <= line.get_linewidth()).all())


def _joined(names: list[str]) -> str:
    """Join names without repetition: 'a = b, 1 = 2 ranks' for ['a, 1 rank', 'a, 2 ranks', 'b, 1 rank', 'b, 2
    ranks'].
    """
    ends: dict[str, list[str]] = {}  # {beginning of names: their ends}
    for name in names:
        begin, _, end = name.rpartition(", ")
        ends.setdefault(begin, []).append(end)
    if len(set(map(tuple, ends.values()))) == 1:
        alike = _counts(next(iter(ends.values())))
        return f"{' = '.join(ends)}, {alike}" if "" not in ends else alike
    return " = ".join(f"{begin}, {_counts(own)}" if begin else _counts(own) for begin, own in ends.items())


def _counts(ends: list[str]) -> str:
    """'1 = 2 ranks' of ['1 rank', '2 ranks']."""
    if all(re.fullmatch(r"\d+ ranks?", end) for end in ends):
        ends = [*(end.split()[0] for end in ends[:-1]), ends[-1]]
    return " = ".join(ends)
