"""All figures of a report in their order, and how they become files: PNG and SVG, the same bytes for the same runs."""

import io
from dataclasses import dataclass

from hpcgnn.report import learning, memory, plots
from hpcgnn.report.style import drawing


@dataclass(frozen=True)
class Figure:
    """A figure on offer. draw(study, axis). applies(study): whether there is anything to draw. wide: a legend beside it."""

    name: str
    title: str
    draw: callable
    applies: callable = lambda study: True
    wide: bool = False


def _scaling(study):
    return study.mode != "none"


def _grows(study):
    return bool((study.points["growth_bytes"] > 0).any())


def _sends(study):
    return bool((study.points["bytes_epoch"] > 0).any())


FIGURES = (
    Figure("epoch_time", "Time of an epoch", plots.epoch_time),
    Figure("speedup", "Speed-up", plots.speedup, _scaling),
    Figure("efficiency", "Parallel efficiency", plots.efficiency, _scaling),
    Figure("memory", "Training memory per rank", plots.memory, _grows),
    Figure("bytes", "Bytes sent per epoch", plots.bytes_sent, _sends),
    Figure("imbalance", "Load imbalance", plots.imbalances),
    Figure("breakdown", "Where the time of an epoch goes", plots.breakdown, wide=True),
    Figure("loss", "Training loss", learning.loss, wide=True),
    Figure("validation", "Validation metric", learning.validation, learning.has_metrics, True),
    Figure("accuracy_bytes", "Accuracy against bytes", learning.accuracy_against_bytes, learning.has_traffic, True),
    Figure("accuracy_seconds", "Accuracy against time", learning.accuracy_against_seconds, learning.has_metrics, True),
    Figure("memory_phases", "Memory by phase", memory.phases_over_ranks, memory.has_profiles, True),
    Figure("memory_account", "Memory: account and measurement", memory.account, memory.has_profiles, True),
)
FORMATS = ("png", "svg")


def draw_figures(study):
    """{figure: {'png': bytes, 'svg': bytes}} of all that apply."""
    drawn = {}
    with drawing() as plt:
        for figure in FIGURES:
            if figure.applies(study):
                picture, axis = plt.subplots(figsize=(7.4 if figure.wide else 4.8, 3.5))
                figure.draw(study, axis)
                drawn[figure] = {kind: _rendered(picture, kind) for kind in FORMATS}
                plt.close(picture)
    return drawn


def _rendered(picture, kind):
    stream = io.BytesIO()
    picture.savefig(stream, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()
