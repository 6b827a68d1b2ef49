"""The schedules `historical` and `batches`, and the preset `gas`."""

from functools import partial

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.extras.steps.batches import build_batches
from hpcgnn.extras.steps.historical import build_historical
from hpcgnn.extras.steps.options import StepsConfig, check_graph, check_options, options_of
from hpcgnn.schedules.base import Build, ScheduleEntry
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.traits import ScheduleTraits


def check_counted(config: Config) -> None:
    """Raise ConfigError for several steps in an epoch."""
    if (steps := options_of(config).steps) != 1:
        raise ConfigError(
            f"estimate counts no messages of --steps {steps}; expected --steps 1, or a run of a few epochs, whose "
            "summary.json has them"
        )


def _entry(build: Build, exact: bool, options: type[StepsConfig] | None = None) -> ScheduleEntry:
    return ScheduleEntry(
        build,
        ScheduleTraits(sums_gradients=True),
        check_options,
        options,
        check_graph=partial(check_graph, exact),
        reads_clusters=True,
        check_counted=check_counted,
    )


register("historical", _entry(build_historical, False, StepsConfig))
register("batches", _entry(build_batches, True))
