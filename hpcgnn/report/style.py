"""How figures look: one size, one order of models and colours, readable in grey and for the colour-blind, and the same
bytes for the same runs.

A panel is as wide as a column of a paper, with text of 7 to 8 points, and has its legend inside. Curves differ in
marker and dash as well as in colour, bars in hatching as well as in lightness. Colours are from Okabe
and Ito (2008): people with any common colour blindness can distinguish them. Their order alternates in lightness.
"""

import contextlib
import itertools
import os
import sys
import textwrap
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


WIDTH, HEIGHT = 3.4, 2.5  # of a panel, in inches
# Names as in the legend of a paper. The place of a model decides its colour and its place in tables and legends.
MODELS = {
    "gcn": "GCN",
    "sage": "GraphSAGE",
    "gat": "GAT",
    "gin": "GIN",
    "appnp": "APPNP",
    "sgc": "SGC",
    "gatv2": "GATv2",
    "transformer": "Transformer",
    "rgcn": "R-GCN",
    "rgat": "R-GAT",
    "pna": "PNA",
    "gine": "GINE",
    "meshgraphnet": "MeshGraphNet",
}
SCHEDULES = {"sar": "SAR", "tma": "TMA", "bns": "BNS"}
COLOURS = ("#0072B2", "#E69F00", "#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7")
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":")
SHADES = ("#0B2545 #9FC9E8 #0072B2 #F6D7A0 #D55E00 #4D4D4D #D9D9D9 #009E73 #F0B7D3 #8C6D1F #7B3294 #B8E186").split()
HATCHES = ("", "//", "", "..", "", "xx", "", "\\\\", "", "++", "", "oo")
IDEAL: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": (0, (1, 2)), "zorder": 1}
# Markers are hollow, so that two at one place are both visible.
SETTINGS: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 7,
    "legend.framealpha": 0.8,
    "legend.edgecolor": "none",
    "legend.handlelength": 1.6,
    "legend.labelspacing": 0.3,
    "legend.columnspacing": 1.2,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "lines.markerfacecolor": "none",
    "lines.markeredgewidth": 1.0,
    "patch.force_edgecolor": True,
    "patch.edgecolor": "white",
    "patch.linewidth": 0.4,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.hashsalt": "hpcgnn",  # otherwise the names inside an SVG are drawn at random
    "figure.constrained_layout.use": True,
}


Name = TypeVar("Name", bound=Hashable)


@contextlib.contextmanager
def drawing() -> Iterator[Any]:
    """matplotlib's Figure, with our settings alone: a user's matplotlibrc does not count.

    It is drawn by Agg or as SVG or PDF, by the format. Raises ImportError without matplotlib.
    """
    first = "matplotlib" not in sys.modules
    backend = os.environ.pop("MPLBACKEND", "") if first else ""  # a notebook's, which this environment may not have
    import matplotlib

    if backend:
        os.environ["MPLBACKEND"] = backend
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield Figure


def line_styles(names: Iterable[Name]) -> dict[Name, dict[str, Any]]:
    """Return {name: keyword arguments of `plot`}. Where all names are models, their places in MODELS decide."""
    names, models = list(names), list(MODELS.values())
    places = [models.index(name) for name in names if name in models]
    looks = list(zip(COLOURS * 4, MARKERS * 4, DASHES * 7, strict=True))
    return {
        name: dict(zip(("color", "marker", "linestyle"), looks[place % len(looks)], strict=True))
        for name, place in zip(names, places if len(places) == len(names) else range(len(names)), strict=True)
    }


def bar_styles(names: Iterable[Name]) -> dict[Name, dict[str, Any]]:
    """{name: keyword arguments of `bar`}."""
    looks = itertools.cycle(zip(SHADES, HATCHES, strict=True))
    return {name: {"color": shade, "hatch": hatch} for name, (shade, hatch) in zip(names, looks, strict=False)}


def log_axis(axis: "Axis") -> None:
    """Make one axis logarithmic (`axis.xaxis` or `axis.yaxis` of a plot), with plain numbers, also over less than a
    decade.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    least, most = sorted(axis.get_data_interval())
    close = least > 0 and most < 10 * least
    axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if close else (1, 2, 5), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def legend(axis: "Axes", columns: int = 1, above: bool = False) -> None:
    """The legend inside a panel: where curves leave room, or above bars, which then leave it."""
    handles, labels = axis.get_legend_handles_labels()
    if above:
        share = min(0.7, 0.06 + 0.065 * -(-len(handles) // columns))
        axis.set_ylim(0, axis.dataLim.ymax / (1 - share))
    place = "upper center" if above else "best"
    narrow = {"fontsize": 6.5, "handlelength": 1.2, "columnspacing": 0.8} if columns > 1 else {}
    axis.legend(handles, [textwrap.fill(each, 60 // columns) for each in labels], loc=place, ncols=columns, **narrow)


def epochs_axis(axis: "Axes") -> None:
    """An axis of epochs, which are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axis.set(xlabel="epoch", xlim=(0, None))


def from_zero(axis: "Axes") -> None:
    """Let the values begin at zero; where that leaves more than half of the panel empty, have dots for them instead."""
    least, most = axis.dataLim.intervaly
    if 0 <= least <= most / 2:
        axis.set_ylim(0, None)
        return
    for line in axis.lines:
        if len(line.get_xdata()) > 2:
            line.set(marker="o", markersize=2.5, markevery=max(1, len(line.get_xdata()) // 15))


def ranks_axis(axis: "Axes", ranks: Iterable[int]) -> None:
    """A logarithmic axis to base 2 with the numbers of ranks themselves as ticks."""
    ranks = sorted(set(ranks))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ranks, [str(r) for r in ranks])
    axis.minorticks_off()
    axis.set_xlabel("MPI ranks")
