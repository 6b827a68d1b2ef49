"""The schedules that `--schedule` offers."""

from hpcgnn.schedules import batches, bns, historical, lazy, sar, stale, tma
from hpcgnn.schedules.base import ScheduleEntry

SCHEDULES: dict[str, ScheduleEntry] = {
    "sar": sar.SCHEDULE,
    "lazy": lazy.SCHEDULE,
    "tma": tma.SCHEDULE,
    "bns": bns.SCHEDULE,
    "stale": stale.SCHEDULE,
    "historical": historical.SCHEDULE,
    "batches": batches.SCHEDULE,
}
