"""Registers the task `links`, its options and rules, and its tables of `predict`."""

import argparse
from collections.abc import Iterator

from hpcgnn.app.corrections import TABLES, OutputEntry, PredictedTable
from hpcgnn.config import declare
from hpcgnn.extras.links.options import LINKS, LinksConfig
from hpcgnn.extras.links.task import Links
from hpcgnn.plan.rules import RULES, schedules_with
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.tasks.registry import TASKS


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of `predict` that ask for a table."""
    command.add_argument(
        "--pairs",
        metavar="FILE",
        default="",
        help="of links, instead: the scores of the pairs in this file, two ids in each line; -o FILE.csv",
    )
    command.add_argument(
        "--best",
        metavar="K",
        type=int,
        help="of links, instead: the K best targets of each node of --nodes, or of all nodes; -o FILE.csv",
    )
    command.add_argument(
        "--held-out",
        action="store_true",
        help="of links, instead: the held-out edges, drawn or given, and their splits; -o FILE.csv",
    )


def table_of(arguments: argparse.Namespace) -> PredictedTable | None:
    """The table that the arguments of `predict` ask for, or None."""
    if not (arguments.pairs or arguments.best is not None or arguments.held_out):
        return None
    from hpcgnn.extras.links.tables import LinkTable  # it imports the engine

    return LinkTable(arguments.pairs, arguments.best, arguments.held_out)


def rule(of: RunPlan) -> Iterator[str]:
    """Schedules and subgraphs that the task cannot be learned with."""
    if of.config.task.task == LINKS and (of.config.data.inductive or not of.schedule.exact_epochs):
        yield (
            f"--task {LINKS} is learned from training edges, by the rows of both ends of each in every step: expected "
            f"no --inductive, and --schedule {schedules_with(lambda each: each.exact_epochs)}, got --schedule "
            f"{of.config.schedule.schedule}"
        )


declare("task", LINKS, LinksConfig)
TASKS.register(LINKS, Links())
TABLES.register(LINKS, OutputEntry(add_options, table_of))
RULES.append(rule)
