"""Lines that nobody could tell apart become one, under all names; what can be told apart stays."""

import re

import matplotlib
import numpy as np
import pytest

from hpcgnn.report.coincide import merge_coinciding
from hpcgnn.report.study import build_study
from hpcgnn.report.style import legend, line_styles
from hpcgnn.report.write import write_report

matplotlib.use("Agg")
POINTS = 0.01  # of the axis below, about a line's width: 3 inches are 216 points for a range of 1


@pytest.fixture
def drawn():
    """drawn({name: (x, y)}) -> (axis, sentences, labels in the legend, names of lines that are left)."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(4, 4))

    def draw(series):
        axis = figure.add_axes([0.1, 0.1, 0.75, 0.75])
        lines = {name: axis.plot(*series[name], label=name, **style) for name, style in line_styles(series).items()}
        axis.set_ylim(0, 1)
        said = merge_coinciding(axis, lines)
        legend(axis, False, always=True)
        labels = [text.get_text() for text in axis.get_legend().get_texts()]
        return axis, said, labels, [name for name, (line,) in lines.items() if line in axis.lines]

    yield draw
    plt.close(figure)


X = np.array([1, 2, 4])
Y = np.array([0.2, 0.4, 0.9])


def test_points_on_top_of_each_other_are_one_line(drawn):
    _, said, labels, left = drawn({"cap 8 MiB": (X, Y), "one-shot": (X, Y), "other": (X, Y / 2)})
    assert labels == ["cap 8 MiB = one-shot", "other"] and left == ["cap 8 MiB", "other"]
    assert said == ["cap 8 MiB = one-shot: one line, since they coincide within its width."]


@pytest.mark.parametrize("apart, merged", [(0.4, True), (5, False)])
def test_the_width_of_a_line_is_the_measure(drawn, apart, merged):
    _, _, labels, _ = drawn({"a": (X, Y), "b": (X, Y + apart * POINTS * np.array([1, 0, 0]))})
    assert labels == (["a = b"] if merged else ["a", "b"])


def test_what_begins_alike_is_said_once(drawn):
    _, _, labels, _ = drawn({f"gcn, sar, {n} rank{'s' * (n > 1)}": (X, Y) for n in (1, 2, 4)})
    assert labels == ["gcn, sar, 1 = 2 = 4 ranks"]


@pytest.mark.parametrize(
    "names, label",
    [
        (["a, 1 rank", "a, 2 ranks", "b, 1 rank", "b, 2 ranks"], "a = b, 1 = 2 ranks"),
        (["a, 2 ranks", "b, 2 ranks"], "a = b, 2 ranks"),
        (["a, 1 rank", "a, 2 ranks", "b, 2 ranks"], "a, 1 = 2 ranks = b, 2 ranks"),
        (["gcn, cap 8 MiB", "gcn, one-shot"], "gcn, cap 8 MiB = one-shot"),
        (["forward", "backward", "step"], "forward = backward = step"),
    ],
)
def test_the_names_of_several(drawn, names, label):
    _, _, labels, _ = drawn({name: (X, Y) for name in names})
    assert " ".join(labels[0].split()) == label


def test_a_point_on_a_longer_line_is_said(drawn):
    _, said, labels, left = drawn({"a": (X, Y), "b": (X[1:2], Y[1:2]), "c": (X[1:2], Y[1:2] / 2)})
    assert labels == ["a", "b (lies on a)", "c"] and left == ["a", "b", "c"] and said == ["b lies on a."]


def test_what_is_not_drawn_coincides_with_nothing(drawn):
    _, said, labels, _ = drawn({"a": (X, Y * np.nan), "b": (X, Y * np.nan)})
    assert said == [] and labels == ["a", "b"]


def test_the_bars_of_a_line_that_goes_stay(drawn):
    axis, *_ = drawn({"a": (X, Y)})
    lines = {name: axis.plot(X, Y / 3, label=name, color=colour) for name, colour in (("b", "red"), ("c", "blue"))}
    bars = axis.errorbar(X, Y / 3, Y / 4, fmt="none", ecolor="blue")
    lines["c"] += bars[2]
    merge_coinciding(axis, lines)
    assert bars[2][0] in axis.collections
    assert matplotlib.colors.same_color(bars[2][0].get_color(), "red"), "in the colour of the line that is left"


def test_in_a_report(runs, tmp_path):
    """The exact schedule has one loss curve on one and on two ranks, and the same bytes under any cap."""
    write_report(build_study(runs("p1-a", "p2-a", "tight-p2"), ["halo_buffer"]), [], tmp_path)
    svg = {name: (tmp_path / f"{name}.svg").read_text() for name in ("loss", "bytes", "accuracy_bytes")}
    words = " ".join(re.findall("<!-- (.*) -->", svg["loss"]))
    assert "cap 8 MiB, 1 = 2 ranks = cap 0.005 MiB, 2 ranks" in words
    assert "<!-- cap 0.005 MiB (lies on cap 8 MiB) -->" in svg["bytes"]
    assert "one line, since they coincide" in (tmp_path / "captions.md").read_text()


def test_dollars_in_names_are_dollars(runs, tmp_path):
    """Two names in one label have two dollars between them something that is no formula."""
    found = runs("p1-a", "p2-a")
    for run in found:
        run.summary["config"]["schedule"]["schedule"] = "a$%_"
    write_report(build_study(found, ["schedule"]), [], tmp_path)
    assert (tmp_path / "loss.png").exists()
