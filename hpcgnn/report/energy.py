"""The energy of a run in words: the coverage of its joules, or why there are none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcgnn.report.read import Run

NOT_RECORDED = "not recorded by the version that wrote them"
MOST_REASONS = 3


def energy_line(energy: Mapping[str, Any]) -> str:
    """'12.3 J per epoch, 1,230 J in all, of processors and memory of 2 nodes'. energy: of a summary, with joules."""
    nodes = f"{energy['nodes']} node{'s' if energy['nodes'] > 1 else ''}"
    what = energy["covers"].split(":")[0]
    return f"{energy['joules_per_epoch']:,.4g} J per epoch, {energy['joules']:,.0f} J in all: {what}, {nodes}"


def joules_per_epoch(run: "Run") -> float | None:
    """None where the run does not know."""
    return (run.summary.get("energy") or {}).get("joules_per_epoch")


def energy_note(runs: Sequence["Run"]) -> str:
    """Describe the coverage of the joules in a table, and the most frequent reasons for missing ones.

    Returns:
        the note; '' for runs older than the energy records.
    """
    told = [run.summary.get("energy") or {} for run in runs]
    if not any(told):
        return ""
    covered = list(dict.fromkeys(one["covers"] for one in told if one.get("joules") is not None))
    missing = Counter(one.get("reason", NOT_RECORDED) for one in told if one.get("joules") is None)
    parts = [f"Energy is of {what}." for what in covered]
    for reason, count in missing.most_common(MOST_REASONS):
        which = "" if count == len(runs) else f" ({count} of {len(runs)} runs)"
        parts.append(f"Energy{which}: {reason}.")
    return " ".join(parts)
