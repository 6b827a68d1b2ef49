"""The schedule `stale`."""

from hpcgnn.extras.stale.stale_halo import SCHEDULE
from hpcgnn.schedules.schedule_registry import register
from hpcgnn.suggestions import MEANINGS

register("stale", SCHEDULE)
MEANINGS.update(dict.fromkeys(("staleness", "delay", "pipeline"), "stale-epochs"))
