"""The loss reports of a study's runs as two tables: where the time went, and the possible remedies."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from hpcgnn.report.losses import PARTS, SHOWN
from hpcgnn.report.tables import Table

if TYPE_CHECKING:
    from hpcgnn.report.read import Run
    from hpcgnn.report.study import Study

# Remedies of each run that are listed.
MOST_LINES = 3
NOTE = (
    "Shares of the time of the epochs, in the mean over ranks; they add up to 100 %. Imbalance: how much longer than "
    "the mean the rank with the most work had. Shared cores: what ranks lost that had fewer cores than threads."
)


def make_loss_tables(study: "Study") -> list[Table]:
    """[losses, remedies] of the runs that have a loss report; [] if none has."""
    runs = [run for run in study.runs if run.summary.get("losses")]
    return [_losses(runs), _remedies(runs)] if runs else []


def _losses(runs: list["Run"]) -> Table:
    frame = pd.DataFrame(
        [
            {"run": run.name, "ranks": run.summary["ranks"]}
            | {f"share_{part}": run.summary["losses"]["parts"].get(part, 0.0) for part in PARTS}
            for run in runs
        ]
    )
    parts = [part for part in PARTS if (frame[f"share_{part}"] >= 0.005).any()]
    rows = [
        [row["run"], str(row["ranks"]), *(f"{100 * row[f'share_{part}']:.0f}" for part in parts)]
        for _, row in frame.iterrows()
    ]
    head = ["run", "ranks", *(PARTS[part] for part in parts)]
    return Table("losses", "Where the time of epochs went (%)", head, rows, frame, NOTE)


def _remedies(runs: list["Run"]) -> Table:
    found: list[dict[str, Any]] = [
        {"run": run.name, "ranks": run.summary["ranks"], **loss}
        for run in runs
        for loss in run.summary["losses"]["lines"][:MOST_LINES]
    ]
    frame = pd.DataFrame(found, columns=["run", "ranks", "name", "title", "share", "gain", "found", "remedy", "inside"])
    rows = [
        [
            *(one["run"], one["title"], f"{100 * one['share']:.0f}", one["found"]),
            *(f"{100 * one['gain']:.0f}", one["remedy"].replace("`", "")),
        ]
        for one in found
    ]
    rows += [[run.name, "nothing to gain", "–", "", "–", ""] for run in runs if not run.summary["losses"]["lines"]]
    note = f"Of each run the {MOST_LINES} losses with the most to gain, from {100 * SHOWN:.0f} % on; upper bounds."
    head = ["run", "loss", "share (%)", "found", "to gain at the most (%)", "by"]
    return Table("remedies", "What would help", head, rows, frame, note)
