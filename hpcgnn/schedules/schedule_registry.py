"""The schedules that `--schedule` offers: name -> build(local, comm, buffers, config, random) -> Schedule."""

from collections.abc import Callable

from hpcgnn.comm import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Randomness
from hpcgnn.schedules.base import Schedule
from hpcgnn.schedules.bns import build_bns
from hpcgnn.schedules.lazy import build_lazy
from hpcgnn.schedules.sar import build_sar
from hpcgnn.schedules.stale import build_stale
from hpcgnn.schedules.tma import build_tma

Build = Callable[[LocalGraph, Communicator, HaloBuffers, Config, Randomness], Schedule]
SCHEDULES: dict[str, Build] = {
    "sar": build_sar,
    "lazy": build_lazy,
    "tma": build_tma,
    "bns": build_bns,
    "stale": build_stale,
}
