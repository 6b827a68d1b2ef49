"""The schedule `stale`."""

from hpcgnn.extras.stale.stale_halo import SCHEDULE
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.suggestions import MEANINGS

register("stale", SCHEDULE)
MEANINGS[r"(staleness|delay|pipeline)(-epochs)?"] = "stale-epochs"
