"""The schedules that `--schedule` offers."""

from hpcgnn.config import declare
from hpcgnn.registry import Registry
from hpcgnn.schedules import bns, lazy, sar, tma
from hpcgnn.schedules.base import ScheduleEntry

SCHEDULES: Registry[ScheduleEntry] = Registry("schedule")


def register(name: str, entry: ScheduleEntry) -> None:
    """Offer a schedule, with the options of its own. Raises ValueError for a name that is taken."""
    SCHEDULES.check(name)
    if entry.options is not None:
        declare("schedule", name, entry.options)
    SCHEDULES.register(name, entry)


register("sar", sar.SCHEDULE)
register("lazy", lazy.SCHEDULE)
register("tma", tma.SCHEDULE)
register("bns", bns.SCHEDULE)
