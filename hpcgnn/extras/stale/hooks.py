"""The schedule `stale`."""

from hpcgnn.extras.stale.stale_halo import SCHEDULE
from hpcgnn.schedules.schedule_registry import register

register("stale", SCHEDULE)
