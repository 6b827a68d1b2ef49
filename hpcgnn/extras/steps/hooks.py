"""The schedules `historical` and `batches`, and the preset `gas`."""

from functools import partial
from typing import Any

from hpcgnn.extras.steps.batches import build_batches
from hpcgnn.extras.steps.historical import build_historical
from hpcgnn.extras.steps.options import StepsConfig, check_graph, check_options, options_of
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import Build, ScheduleEntry
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.traits import ScheduleTraits


def count_steps(exact: bool, plan: RunPlan, counter: Any) -> Any:
    """See ScheduleEntry, and `check_graph`."""
    options = options_of(plan.config)
    if options.steps == 1:
        return None
    from hpcgnn.extras.steps.counts import Steps

    return Steps(exact, counter, plan)


def _entry(build: Build, exact: bool, options: type[StepsConfig] | None = None) -> ScheduleEntry:
    return ScheduleEntry(
        build,
        ScheduleTraits(sums_gradients=True),
        check_options,
        options,
        check_graph=partial(check_graph, exact),
        reads_clusters=True,
        count_steps=partial(count_steps, exact),
    )


register("historical", _entry(build_historical, False, StepsConfig))
register("batches", _entry(build_batches, True))
