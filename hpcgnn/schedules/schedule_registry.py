"""The schedules that `--schedule` offers."""

from hpcgnn.config import declare
from hpcgnn.schedules import batches, bns, historical, lazy, sar, stale, tma
from hpcgnn.schedules.base import ScheduleEntry

SCHEDULES: dict[str, ScheduleEntry] = {}


def register(name: str, entry: ScheduleEntry) -> None:
    """Offer a schedule, with the options of its own. Raises ValueError for a name that is taken."""
    if name in SCHEDULES:
        raise ValueError(f"register: the schedule {name!r} exists; choose another name than {', '.join(SCHEDULES)}")
    if entry.options is not None:
        declare("schedule", name, entry.options)
    SCHEDULES[name] = entry


register("sar", sar.SCHEDULE)
register("lazy", lazy.SCHEDULE)
register("tma", tma.SCHEDULE)
register("bns", bns.SCHEDULE)
register("stale", stale.SCHEDULE)
register("historical", historical.SCHEDULE)
register("batches", batches.SCHEDULE)
#: The schedules of the package; others are of a plugin.
BUILT_IN = tuple(SCHEDULES)
