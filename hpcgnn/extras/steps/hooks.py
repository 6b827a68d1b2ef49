"""The schedules `historical` and `batches`, and the preset `gas`."""

from typing import Any

from hpcgnn.errors import ConfigError
from hpcgnn.extras.steps.batches import build_batches
from hpcgnn.extras.steps.historical import build_historical
from hpcgnn.extras.steps.options import StepsConfig, check_graph, check_options, options_of
from hpcgnn.options.presets import PRESETS, Preset
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.traits import ScheduleTraits


def count_steps(plan: RunPlan, counter: Any) -> Any:
    """See ScheduleEntry."""
    options = options_of(plan.config)
    if options.steps == 1:
        return None
    if counter is None:
        raise ConfigError(
            f"--schedule {options.schedule} with --steps {options.steps} computes shares of the clusters, and --stats "
            "has no clusters; expected --graph, --steps 1, or --schedule sar"
        )
    from hpcgnn.extras.steps.counts import Steps

    return Steps(counter, plan)


_common: dict[str, Any] = {
    "traits": ScheduleTraits(sums_gradients=True),
    "check": check_options,
    "check_graph": check_graph,
    "reads_clusters": True,
    "count_steps": count_steps,
}
register("historical", ScheduleEntry(build_historical, options=StepsConfig, **_common))
register("batches", ScheduleEntry(build_batches, **_common))
PRESETS["gas"] = Preset("GAS: 8 steps in an epoch, each on some clusters", {"schedule": "historical", "steps": 8})
