"""Series that coincide in a figure: of those that nobody could tell apart one is left, under the names of all.

Exact methods give the same losses on any number of ranks, and the same bytes under any cap. Drawn as they are, the last of
them hides the others, and the reader of the legend looks for curves that seem to be missing.
"""

import re

import numpy as np

POINTS_PER_INCH = 72


def merge_coinciding(axis, series):
    """Remove lines that coincide with an earlier one within the width of a line, as drawn, and give that one their names.

    series: {name: [Line2D, what belongs to it]} of one axis whose limits and scales are as they will be; names become the labels
    of the legend. Bars and bands of a line that goes stay, in the colour of the one that is left. A line whose points all lie on
    those of a longer one stays, and its label says on which. Returns sentences that say what was found.
    """
    said, lines = [], {name: artists[0] for name, artists in series.items()}
    figure = axis.figure
    figure.draw_without_rendering()  # lays the axis out, so that its size is known
    places = {name: _places(line, figure) for name, line in lines.items()}
    left = {}
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
        if len(names) > 1:
            said.append(f"{_joined(names)}: one line, since they coincide within its width.")
    for name, names in left.items():
        longer = next((one for one in left if one != name and _within(places[name], places[one], lines[name])), None)
        if longer is not None:
            lines[name].set_label(f"{_joined(names)} (lies on {_joined(left[longer])})")
            said.append(f"{_joined(names)} lies on {_joined(left[longer])}.")
    return said


def _places(line, figure):
    """The points of a line on the sheet, float64 (n, 2) in points of 1/72 inch; those that are not drawn are left out."""
    places = line.axes.transData.transform(np.column_stack([np.asarray(x, float) for x in line.get_data()]))
    return places[np.isfinite(places).all(1)] * (POINTS_PER_INCH / figure.dpi)


def _same(one, other, width):
    return len(one) == len(other) > 0 and bool((np.abs(one - other) <= width).all())


def _within(few, many, line):
    """Whether all of a short line's points lie on points of one that has more."""
    if not 0 < len(few) < min(len(many), 65):  # those of long lines lie between the points
        return False
    apart = np.abs(few[:, None] - many[None]).max(2)
    return bool((apart.min(1) <= line.get_linewidth()).all())


def _joined(names):
    """'a, 1 = 2 ranks' of ['a, 1 rank', 'a, 2 ranks']: what they begin with alike is said once."""
    parts = [name.split(", ") for name in names]
    alike = 0
    while all(len(own) > alike + 1 and own[: alike + 1] == parts[0][: alike + 1] for own in parts):
        alike += 1
    ends = [", ".join(own[alike:]) for own in parts]
    if all(re.fullmatch(r"\d+ ranks?", end) for end in ends[:-1]):
        ends[:-1] = [end.split()[0] for end in ends[:-1]]  # '1 = 2 ranks'
    return ", ".join([*parts[0][:alike], " = ".join(ends)])
