"""One traced epoch of all ranks as a picture: a lane for each rank, coloured by its activity.

The data comes from the files of `hpcgnn train --trace` (plugins/trace.py). A lane has as many pieces as a reader can
distinguish, each in the colour of its longest activity. So a picture of a hundred thousand spans is no larger than one
of ten.
"""

import gzip
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.report.losses import TRAINING
from hpcgnn.report.style import note_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study

MOST_LANES = 12
PIECES = 600
#: {activity: (its name in the legend, colour)}; the later ones of `ACTIVITIES` are drawn over `PHASES`.
PHASES = {
    "forward": ("forward, other", "#C6DBEF"),
    "backward": ("backward, other", "#DADAEB"),
    "reduction": ("reduction, other", "#D9D9D9"),
    "step": ("optimizer step", "#8C6D1F"),
    "evaluation": ("evaluation, other", "#C7E9C0"),
    "checkpoint": ("checkpoint", "#7B3294"),
}
ACTIVITIES = {
    "gather": ("gather", "#0072B2"),
    "attention": ("attention", "#0B2545"),
    "product": ("product", "#009E73"),
    "pack": ("pack", "#E69F00"),
    "kernel": ("other kernels", "#56B4E9"),
    "wait": ("waiting for messages", "#D55E00"),
    "all ranks": ("all-reduce and alike", "#CC79A7"),
}


@dataclass(frozen=True)
class Lane:
    """One rank's epoch.

    Attributes:
        spans: {activity: [(begin, end)]}, seconds from the epoch's first begin on any rank.
        end: end of the epoch on this rank.
    """

    rank: int
    spans: Mapping[str, Sequence[tuple[float, float]]]
    end: float


def has_trace(study: "Study") -> bool:
    """Whether any run of the study has a trace that can be drawn."""
    return traced_run(study) is not None


def traced_run(study: "Study") -> "Run | None":
    """The run that is drawn: of those with a trace the one with the most ranks, the first of these."""
    runs = [run for run in study.runs if trace_files(run.path)]
    return max(runs, key=lambda run: run.summary["ranks"], default=None)


def trace_files(path: Path) -> dict[int, Path]:
    """{rank: file} of the traces of a run."""
    return {int(file.name[5:].split(".")[0]): file for file in sorted((path / "trace").glob("rank-[0-9]*.json.gz"))}


def chosen_ranks(run: "Run", most: int = MOST_LANES) -> list[int]:
    """Return the ranks to draw, in order: all, or a selection of very many.

    The selection has the ranks with the most work, the least work, and those in the middle.
    """
    known = list(trace_files(run.path))
    if len(known) <= most:
        return known
    busy = {rank["rank"]: _busy(rank) for rank in run.ranks}
    ordered = sorted(known, key=lambda rank: (-busy.get(rank, 0.0), rank))
    third = most // 3
    middle = (len(ordered) - third) // 2
    return sorted({*ordered[:third], *ordered[middle : middle + third], *ordered[-third:]})


def _busy(rank: Mapping[str, Any]) -> float:
    """Seconds in which a rank did not wait, by its record; 0 where this does not tell."""
    parts = rank.get("losses", {}).get("parts", {})
    return sum(parts[name]["seconds"] - parts[name]["waiting_seconds"] for name in TRAINING if name in parts)


def read_lanes(run: "Run") -> tuple[int, list[Lane]]:
    """(the epoch that is drawn, its Lanes): of the traced ones that all files have whole, the one in the middle.
    (0, []) if there is none.
    """
    files, events = trace_files(run.path), {}
    for rank in chosen_ranks(run):
        try:
            events[rank] = json.loads(gzip.decompress(files[rank].read_bytes()))["traceEvents"]
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
            continue  # a damaged trace takes nothing from the report
    epochs = {rank: _epochs(spans) for rank, spans in events.items()}
    common = sorted(set.intersection(*(set(each) for each in epochs.values()))) if epochs else []
    if not common:
        return 0, []
    number = common[(len(common) - 1) // 2]
    start = min(each[number][0] for each in epochs.values())
    return number, [_lane(rank, spans, epochs[rank][number], start) for rank, spans in events.items()]


def _epochs(events: Sequence[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """{epoch: (begin, end)} in microseconds."""
    return {
        int(event["name"].split()[-1]): (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "epoch"
    }


def _lane(rank: int, events: Sequence[Mapping[str, Any]], epoch: tuple[float, float], start: float) -> Lane:
    spans: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("ph") != "X" or not epoch[0] <= event["ts"] < epoch[1]:
            continue
        what = event["name"] if event["cat"] == "phase" or event["name"] == "all ranks" else event["cat"]
        if what in PHASES or what in ACTIVITIES:
            begin = event["ts"] - start
            spans.setdefault(what, []).append((begin / 1e6, (begin + event["dur"]) / 1e6))
    return Lane(rank, spans, (epoch[1] - start) / 1e6)


def pieces_of(lane: Lane, length: float, count: int = PIECES) -> list[tuple[str, int, int]]:
    """Return the longest activity of each of `count` equal pieces, as runs [(activity, first piece, pieces)].

    A phase counts where there is no activity, and '' stands for neither.

    Args:
        lane: the lane.
        length: seconds of all pieces together.
        count: number of pieces.
    """
    names = ["", *PHASES, *ACTIVITIES]
    taken = np.zeros((len(names), count))
    for what, spans in lane.spans.items():
        row = taken[names.index(what)]
        for begin, end in spans:
            first, last = begin / length * count, min(end / length * count, count)
            inner = range(int(first), min(count, int(np.ceil(last))))
            for piece in inner:
                row[piece] += min(last, piece + 1) - max(first, piece)
    phases, activities = taken[1 : 1 + len(PHASES)], taken[1 + len(PHASES) :]
    # The time of a phase outside of its activities, and of an epoch outside of its phases.
    phases *= np.clip(1 - activities.sum(0) / np.maximum(phases.sum(0), 1e-12), 0, 1)
    inside = np.arange(count) < lane.end / length * count
    taken[0] = np.where(inside, np.clip(1 - taken[1:].sum(0), 0, 1), 1)
    most = taken.argmax(0)
    cuts = [0, *(np.flatnonzero(np.diff(most)) + 1).tolist(), count]
    return [(names[most[first]], first, last - first) for first, last in itertools.pairwise(cuts)]


def timeline(study: "Study", axis: "Axes") -> None:
    """The lanes of the traced run with the most ranks."""
    run = traced_run(study)
    assert run is not None, "the figure applies"
    epoch, lanes = read_lanes(run)
    if not lanes:
        axis.text(0.5, 0.5, "no epoch is whole in the traces", ha="center", transform=axis.transAxes)
        return
    length = max(lane.end for lane in lanes)
    width, bars = 1e3 * length / PIECES, [pieces_of(lane, length) for lane in lanes]
    for what, (label, colour) in {**PHASES, **ACTIVITIES}.items():
        for place, (lane, pieces) in enumerate(zip(lanes, bars, strict=True)):
            strip = [(1e3 * begin, 1e3 * (end - begin)) for begin, end in lane.spans.get(what, ()) if what in PHASES]
            axis.broken_barh(strip, (place - 0.45, 0.1), facecolor=colour, linewidth=0)
            done = [(first * width, count * width) for kind, first, count in pieces if kind == what]
            if done:
                axis.broken_barh(done, (place - 0.33, 0.76), facecolor=colour, linewidth=0, label=label)
                label = "_nolegend_"
    axis.set_yticks(range(len(lanes)), [str(lane.rank) for lane in lanes])
    axis.invert_yaxis()
    axis.set_xlim(0, 1e3 * length)
    axis.set_xlabel(f"time of epoch {epoch} (ms)")
    axis.set_ylabel("rank")
    axis.grid(False, axis="y")
    note_below(axis, [about(study)])


def about(study: "Study") -> str:
    """Which run, which epoch and which ranks are drawn, in words."""
    run = traced_run(study)
    if run is None:
        return ""
    epoch, lanes = read_lanes(run)
    ranks = run.summary["ranks"]
    which = "all" if len(lanes) == ranks else f"{len(lanes)} (most, middle and least work) of the"
    return f"Run {run.name}, epoch {epoch}, {which} {ranks} rank{'s' if ranks > 1 else ''}."
