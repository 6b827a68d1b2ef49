"""The schedules that `--schedule` offers: name -> build(local, comm, buffers) -> Schedule."""

from hpcgnn.schedules.sar import build_sar

SCHEDULES = {"sar": build_sar}
