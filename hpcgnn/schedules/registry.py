"""The schedules that `--schedule` offers: name -> build(local, comm, buffers, config) -> Schedule."""

from hpcgnn.schedules.lazy import build_lazy
from hpcgnn.schedules.sar import build_sar

SCHEDULES = {"sar": build_sar, "lazy": build_lazy}
