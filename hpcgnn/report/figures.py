"""All figures of a report in their order, and how they become files: PNG and SVG, the same bytes for the same runs."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcgnn.report import learning, memory_tables, plots
from hpcgnn.report.captions import caption
from hpcgnn.report.remarks import remarks
from hpcgnn.report.study import Study
from hpcgnn.report.style import drawing, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Figure:
    """A figure on offer.

    Attributes:
        draw: draw(study, axis).
        applies: applies(study) returns whether there is data for it.
        wide: the legend is to the right of the figure.
        timed: whether `remarks` belong to it.
    """

    name: str
    title: str
    draw: Callable[[Study, "Axes"], None]
    applies: Callable[[Study], bool] = lambda study: True
    wide: bool = False
    timed: bool = False


@dataclass(frozen=True)
class Drawn:
    """A figure as files: {'png': bytes, 'svg': bytes}, with the text that explains how to read it."""

    figure: Figure
    images: dict[str, bytes]
    caption: str


def _scaling(study: Study) -> bool:
    return study.mode != "none"


def _grows(study: Study) -> bool:
    return bool((study.points["growth_bytes"] > 0).any())


def _sends(study: Study) -> bool:
    return bool((study.points["bytes_epoch"] > 0).any())


FIGURES = (
    Figure("epoch_time", "Time of an epoch", plots.epoch_time, timed=True),
    Figure("speedup", "Speed-up", plots.speedup, _scaling, timed=True),
    Figure("efficiency", "Parallel efficiency", plots.efficiency, _scaling, timed=True),
    Figure("memory", "Training memory per rank", plots.memory, _grows),
    Figure("bytes", "Bytes sent per epoch", plots.bytes_sent, _sends),
    Figure("imbalance", "Load imbalance", plots.imbalances, wide=True),
    Figure("breakdown", "Where the time of an epoch goes", plots.breakdown, wide=True),
    Figure("loss", "Training loss", learning.loss, wide=True),
    Figure("validation", "Validation metric", learning.validation, learning.has_metrics, True),
    Figure("accuracy_bytes", "Accuracy against bytes", learning.accuracy_against_bytes, learning.has_traffic, True),
    Figure("accuracy_seconds", "Accuracy against time", learning.accuracy_against_seconds, learning.has_metrics, True),
    Figure("memory_phases", "Memory by phase", memory_tables.phases_over_ranks, memory_tables.has_profiles, True),
    Figure(
        "memory_account", "Memory: account and measurement", memory_tables.account, memory_tables.has_profiles, True
    ),
)
FORMATS = ("png", "svg")


def draw_figures(study: Study) -> list[Drawn]:
    """A list of Drawn, of all that apply."""
    with drawing() as sheet:
        return [_drawn(figure, study, sheet) for figure in FIGURES if figure.applies(study)]


def _drawn(figure: Figure, study: Study, sheet: Any) -> Drawn:
    picture = sheet(figsize=(7.4 if figure.wide else 4.8, 3.5))
    axis = picture.subplots()
    figure.draw(study, axis)
    legend(axis, figure.wide)
    picture.get_layout_engine().execute(picture)
    picture.set_layout_engine("none")  # one layout serves both formats
    text = " ".join([caption(figure.name, study), *(remarks(study) if figure.timed else [])])
    images = {kind: _rendered(picture, kind, figure.title, text) for kind in FORMATS}
    return Drawn(figure, images, text)


def _rendered(picture: Any, kind: str, title: str, text: str) -> bytes:
    stream = io.BytesIO()
    words = {"Title": title, "Description": text}
    picture.savefig(stream, format=kind, dpi=160, metadata={**words, "Date": None} if kind == "svg" else words)
    return stream.getvalue()
