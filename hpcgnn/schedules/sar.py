"""Sequential aggregation and rematerialization (Mostafa, MLSys'22): full halo, all-reduce at every step."""

from hpcgnn.schedules.base import Schedule
from hpcgnn.schedules.halo import FullHalo
from hpcgnn.schedules.sync import AllreduceEveryStep


def build_sar(local, comm, buffers, config):
    """The exact full-batch schedule for a LocalGraph."""
    return Schedule(FullHalo(local, comm, buffers), AllreduceEveryStep(comm))
