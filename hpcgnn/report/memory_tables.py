"""Figures and a table of memory profiles (`hpcgnn train --profile-memory`): by phase, and against the analytic account.

All numbers are the largest rank's, above the memory of the process before it read the graph. That memory (the
interpreter, the libraries and MPI) does not shrink with the number of ranks.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hpcgnn.report.measures import MIB
from hpcgnn.report.plots import label_bars
from hpcgnn.report.style import IDEAL, bar_styles, line_styles, log_axis, ranks_axis
from hpcgnn.report.tables import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hpcgnn.report.study import Study


SETTING_UP = ("load", "plan")
# The items of the account that are resident but not in use at that moment, and an earlier name of the first.
KEPT_FREE = "arena, resident but not in use then"
_RENAMED = {"free pieces of the arena": KEPT_FREE}
FREE_STYLE = {"color": "#FFFFFF", "hatch": "////", "edgecolor": "#8A8A8A", "linewidth": 0.6}
FREE_ITEMS = {KEPT_FREE: FREE_STYLE, "heap, resident but not in use then": {**FREE_STYLE, "hatch": "...."}}


@dataclass(frozen=True)
class Profile:
    """One rank of one run.

    Attributes:
        base: bytes before the graph was read.
        mpi: the part of it that starting MPI took.
        phases: {phase: high-water mark above the base}.
        busiest: the phase of training with the highest mark.
        account: {item: bytes} of the resident memory that is known there; FREE_ITEMS are its unused items.
    """

    label: str
    ranks: int
    base: int
    mpi: int
    phases: dict[str, int]
    busiest: str
    account: dict[str, int]

    @property
    def explained(self) -> float:
        """Return the share of the measured growth in the busiest phase that the account explains; above 1 if it
        overestimates.
        """
        return sum(self.account.values()) / self.phases[self.busiest]


def profiles(study: "Study") -> list[Profile]:
    """Return a Profile for each point with one, in order: the largest rank's in the first repetition."""
    found = {}
    for run in study.runs:
        records = [rank["memory_profile"] for rank in run.ranks if rank.get("memory_profile")]
        key = study.label_of(run), run.summary["ranks"]
        if records and key not in found:
            found[key] = max((_profile(*key, record) for record in records), key=lambda p: p.phases[p.busiest])
    order = [(point["label"], point["ranks"]) for _, point in study.points.iterrows()]
    return [found[key] for key in order if key in found]


def _profile(label: str, ranks: int, record: dict[str, Any]) -> Profile:
    phases = {phase: peak - record["base_bytes"] for phase, peak in record["phase_peak_bytes"].items()}
    busiest = max((phase for phase in phases if phase not in SETTING_UP), key=lambda phase: phases[phase])
    return Profile(
        label,
        ranks,
        record["base_bytes"],
        record.get("base_mpi_bytes", 0),
        phases,
        busiest,
        {_RENAMED.get(item, item): size for item, size in record["account_bytes"][busiest].items()},
    )


def has_profiles(study: "Study") -> bool:
    """Whether any run was profiled."""
    return bool(profiles(study))


def _phase_names(found: list[Profile]) -> list[str]:
    return list(dict.fromkeys(phase for profile in found for phase in profile.phases))


def phases_over_ranks(study: "Study", axis: "Axes") -> None:
    """High-water marks by phase over the ranks, of the first curve that was profiled, with the ideal 1/P."""
    found = profiles(study)
    found = [profile for profile in found if profile.label == found[0].label]
    ranks = np.array([profile.ranks for profile in found])
    names = _phase_names(found)
    for phase, style in line_styles(names).items():
        axis.plot(ranks, [p.phases.get(phase, np.nan) / MIB for p in found], label=phase, **style)
    first = max(found[0].phases.values()) / MIB
    axis.plot(
        ranks, first * ranks[0] / ranks if study.mode == "strong" else [first] * len(ranks), label="ideal", **IDEAL
    )
    ranks_axis(axis, ranks)
    _highest_of_others(found[0].label, study, axis)
    log_axis(axis.yaxis)
    axis.set_ylabel("high-water mark above the base (MiB)")
    axis.set_title(found[0].label, fontsize=9)


def _highest_of_others(label: str, study: "Study", axis: "Axes") -> None:
    """Draw the highest phase of every other profiled curve, such as the baseline's, for comparison."""
    others: dict[str, list[tuple[int, float]]] = {}
    for profile in profiles(study):
        if profile.label != label:
            others.setdefault(profile.label, []).append((profile.ranks, max(profile.phases.values()) / MIB))
    for marker, (name, points) in zip("xx+*123", others.items(), strict=False):
        axis.plot(*zip(*points, strict=True), f"{marker}:", color="black", linewidth=0.8, label=f"highest of\n{name}")


def account(study: "Study", axis: "Axes") -> None:
    """Draw the analytic account as stacked bars next to the measured mark, at the busiest phase of training."""
    found = {(profile.label, profile.ranks): profile for profile in profiles(study)}
    positions = label_bars(study, axis)
    keys = [(point["label"], point["ranks"]) for _, point in study.points.iterrows()]
    shown = [(x, found[key]) for x, key in zip(positions, keys, strict=True) if key in found]
    x, bottom = np.array([x for x, _ in shown]), np.zeros(len(shown))
    items = dict.fromkeys(item for _, profile in shown for item in profile.account)
    styles = bar_styles([item for item in items if item not in FREE_ITEMS])
    for item, style in {**styles, **FREE_ITEMS}.items():  # on top of the items in use
        heights = np.array([profile.account.get(item, 0) / MIB for _, profile in shown])
        axis.bar(x, heights, 0.6, bottom=bottom, label=item, **style)
        bottom += heights
    measured = [profile.phases[profile.busiest] / MIB for _, profile in shown]
    axis.plot(x, measured, "_", color="black", markersize=26, markeredgewidth=2, label="measured")
    axis.set_ylabel("memory above the base (MiB)")


def memory_table(study: "Study") -> Table:
    """The table of phases, base, account and difference."""
    found = profiles(study)
    names = _phase_names(found)
    rows, numbers = [], []
    for profile in found:
        peak, known = profile.phases[profile.busiest], sum(profile.account.values())
        cells = [number(profile.phases[name] / MIB) if name in profile.phases else "–" for name in names]
        rows.append(
            [
                profile.label,
                str(profile.ranks),
                number(profile.base / MIB),
                number(profile.mpi / MIB),
                *cells,
                profile.busiest,
                number(known / MIB),
                number(sum(profile.account.get(item, 0) for item in FREE_ITEMS) / MIB),
                number((peak - known) / MIB),
                f"{100 * profile.explained:.1f} %",
            ]
        )
        numbers.append(
            {"label": profile.label, "ranks": profile.ranks, "base_bytes": profile.base}
            | {"base_mpi_bytes": profile.mpi}
            | {f"{name}_bytes": profile.phases.get(name) for name in names}
            | {"busiest": profile.busiest, "accounted_bytes": known, "difference_bytes": peak - known}
            | {f"account {item} (bytes)": size for item, size in profile.account.items()}
        )
    head = [
        "curve",
        "ranks",
        "base",
        "of it MPI",
        *names,
        "busiest",
        "account",
        "of it not in use",
        "difference",
        "explained",
    ]
    note = (
        "The largest rank, one run of each point. Phases: the kernel's high-water mark of resident memory above the "
        "base, which is what the process held before it read the graph, with what starting MPI took. Account: what "
        "is known to be resident in the busiest phase, which is the live tensors one by one, the growth of MPI's "
        "shared memory and, not in use, the memory of the arena that holds nothing then and that other phases of a "
        "step use; that is neither activations nor workspace."
    )
    return Table("memory", "Memory by phase (MiB per rank)", head, rows, pd.DataFrame(numbers), note)
