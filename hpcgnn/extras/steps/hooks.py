"""The schedules `historical` and `batches`, and the preset `gas`."""

from collections.abc import Iterator
from functools import partial

from hpcgnn.extras.steps.batches import build_batches
from hpcgnn.extras.steps.historical import build_historical
from hpcgnn.extras.steps.options import NAMES, StepsConfig, check_graph, check_options, options_of
from hpcgnn.plan.rules import COUNTING_RULES
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import Build, ScheduleEntry
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.traits import ScheduleTraits


def counted(of: RunPlan) -> Iterator[str]:
    """Several steps in an epoch."""
    if of.config.schedule.schedule in NAMES and (steps := options_of(of.config).steps) != 1:
        yield (
            f"estimate counts no messages of --steps {steps}; expected --steps 1, or a run of a few epochs, whose "
            "summary.json has them"
        )


def _entry(build: Build, exact: bool, options: type[StepsConfig] | None = None) -> ScheduleEntry:
    return ScheduleEntry(
        build,
        ScheduleTraits(),
        check_options,
        options,
        check_graph=partial(check_graph, exact),
        reads_clusters=True,
    )


COUNTING_RULES.append(counted)
register("historical", _entry(build_historical, False, StepsConfig))
register("batches", _entry(build_batches, True))
