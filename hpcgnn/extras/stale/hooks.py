"""The schedule `stale`, and the preset `pipegcn`."""

from hpcgnn.extras.stale.stale_halo import SCHEDULE
from hpcgnn.options.presets import PRESETS, Preset
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.suggestions import MEANINGS

register("stale", SCHEDULE)
PRESETS["pipegcn"] = Preset("PipeGCN: remote rows of the epoch before", {"schedule": "stale", "stale_epochs": 1})
MEANINGS[r"(staleness|delay|pipeline)(-epochs)?"] = "stale-epochs"
