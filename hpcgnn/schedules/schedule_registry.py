"""The schedules that `--schedule` offers: name -> build(local, comm, buffers, config, random) -> Schedule."""

from hpcgnn.schedules.bns import build_bns
from hpcgnn.schedules.lazy import build_lazy
from hpcgnn.schedules.sar import build_sar
from hpcgnn.schedules.stale import build_stale
from hpcgnn.schedules.tma import build_tma

SCHEDULES = {"sar": build_sar, "lazy": build_lazy, "tma": build_tma, "bns": build_bns, "stale": build_stale}
