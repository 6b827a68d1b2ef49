"""The effect of other options: the same job with another halo buffer, other ranks and threads, precision, or schedule.

Each is an estimate of its own. Some leave the results as they are. Others round stored or sent numbers, or train in
another way; then accuracy needs a check as well (docs/schedules.md).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tabulate import tabulate

from hpcgnn.config import Choices, Config, make_config
from hpcgnn.effects import flag
from hpcgnn.errors import ConfigError, GraphError, TrainingError
from hpcgnn.estimate.counts.sources import Source
from hpcgnn.estimate.machine.machine import Machine
from hpcgnn.estimate.results import Place, as_values, size_in_words
from hpcgnn.estimate.seconds import seconds
from hpcgnn.terminal import logged_from

#: The effects of an alternative on the results.
SAME, ROUNDED, OTHER = "the same", "rounded", "another way to train"
BUFFERS = 0.25, 4.0, 16.0  # times the halo buffer as it is
OPTIONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"precision": "mixed"}, ROUNDED),
    ({"halo_dtype": "bf16"}, ROUNDED),
    ({"halo_dtype": "int8"}, ROUNDED),
    ({"schedule": "stale", "stale_epochs": 1}, OTHER),
    ({"schedule": "bns", "boundary_rate": 0.1}, OTHER),
    ({"schedule": "lazy"}, OTHER),
)
# A choice is recommended where it saves more than this share.
WORTH_SAYING = 0.02


@dataclass(frozen=True)
class Alternative:
    """A changed job.

    Attributes:
        options: {name: value} of the changes.
        results: their effect on the results.
        ranks_per_node: None for no change.
    """

    options: Mapping[str, Any]
    results: str
    ranks_per_node: int | None = None


def alternatives(
    source: Source, config: Config, row: Mapping[str, Any], machine: Machine | None, place: Place, choices: Choices
) -> list[dict[str, Any]]:
    """Return estimates of alternatives for the job of `row`, without options that the model, the schedule or the graph
    refuses.

    Returns:
        the values of `as_values` with `options` and `results`; the first is the row itself.
    """
    found = [{"options": "as asked", "results": SAME, **row}]
    for each in _candidates(config, row, machine):
        ranks, node, where = row["ranks"], machine, place
        if each.ranks_per_node is not None and machine is not None:
            ranks = row["nodes"] * each.ranks_per_node
            node = replace(machine, ranks=each.ranks_per_node, threads=machine.cores // each.ranks_per_node)
            where = replace(place, ranks_per_node=node.ranks)
        try:
            threads = config.run.threads if node is None else node.threads
            changed = make_config({**_flat(config), "threads": threads, **each.options}, choices)
            with logged_from(logging.ERROR):
                forecast = source.forecast(changed, ranks)
        except (ConfigError, GraphError, TrainingError):
            continue
        timed = None if node is None else seconds(forecast, node)
        values = as_values(forecast, timed, node, where, changed)
        found.append({"options": _words(each, ranks, node), "results": each.results, **values})
    return found


def _candidates(config: Config, row: Mapping[str, Any], machine: Machine | None) -> Iterator[Alternative]:
    several = row["ranks"] > 1
    if several:
        for factor in BUFFERS:
            yield Alternative({"halo_buffer": config.schedule.halo_buffer * factor}, SAME)
    if machine is not None and not config.run.threads and row["ranks"] == row["nodes"] * machine.ranks:
        for ranks in (machine.ranks // 2, machine.ranks * 2):
            if 1 <= ranks <= machine.cores:
                yield Alternative({}, SAME, ranks)
    chosen = _flat(config)
    for options, results in OPTIONS:
        alike = all(chosen[name] == value for name, value in options.items())
        if not alike and (several or "precision" in options):
            yield Alternative(options, results)


def _flat(config: Config) -> dict[str, Any]:
    return {name: value for section in config.to_dict().values() for name, value in section.items()}


def _words(each: Alternative, ranks: int, machine: Machine | None) -> str:
    if each.ranks_per_node is not None and machine is not None:
        return f"{ranks} rank{'s' * (ranks > 1)} × {machine.threads} thread{'s' * (machine.threads > 1)}"
    shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in each.options.items()}
    return " ".join(f"{flag(name)} {value}" for name, value in shown.items())


def alternatives_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """`alternatives` for people."""
    timed = any(row["epoch_seconds"] for row in rows)
    headers = ["options", "results", "largest\nrank", "sent per\nepoch", "messages"]
    headers += ["s/epoch", "node-\nhours", "fits"] if timed else []
    lines = []
    for row in rows:
        line = [row["options"], row["results"], size_in_words(row["peak_rss_bytes"]["max"])]
        line += [size_in_words(sum(row["bytes_per_epoch"].values())), f"{sum(row['messages_per_epoch'].values()):,}"]
        if timed:
            line += [
                f"{row['epoch_seconds']['median']:.3g}",
                f"{row['node_hours']:.3g}",
                "yes" if row["fits"] else "no",
            ]
        lines.append(line)
    left = ("left", "left", *["right"] * (len(headers) - 2))
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, colalign=left)


def advice_on(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The cheapest choice with the same results, and with rounded ones, in words. By node-hours, or, where seconds are
    not known, by the memory of the largest rank.
    """
    timed = all(row["epoch_seconds"] for row in rows)

    def cost(row: Mapping[str, Any]) -> float:
        return float(row["node_hours"] if timed else row["peak_rss_bytes"]["max"])

    what = "node-hours" if timed else "memory of the largest rank"
    best = rows[0]
    for results, words in ((SAME, "with the same results"), (ROUNDED, "with rounded numbers")):
        fitting = [row for row in rows if row["results"] == results and row["fits"] is not False]
        if not fitting:
            if results == SAME:
                yield f"recommended {words}: nothing; none of these fits the nodes"
            continue
        found = min(fitting, key=cost)
        if best["fits"] is False or cost(found) < (1 - WORTH_SAYING) * cost(best):
            yield f"recommended {words}: {found['options']} ({cost(found) / cost(rows[0]):.2f} of the {what})"
            best = found
        elif results == SAME:
            yield f"recommended {words}: the options as they are"
