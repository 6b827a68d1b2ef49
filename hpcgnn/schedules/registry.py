"""The schedules that `--schedule` offers: name -> build(local, comm, buffers, config) -> Schedule."""

from hpcgnn.schedules.lazy import build_lazy
from hpcgnn.schedules.sar import build_sar
from hpcgnn.schedules.tma import build_tma

SCHEDULES = {"sar": build_sar, "lazy": build_lazy, "tma": build_tma}
