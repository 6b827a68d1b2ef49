"""The Wire that the options ask for, with draws from the run's randomness."""

from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.options import ScheduleConfig


def make_wire(options: ScheduleConfig, local: LocalGraph, random: Randomness) -> Wire:
    """options: ScheduleConfig; local: LocalGraph; random: Randomness, whose epoch is the present one."""
    return Wire(options.halo_dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
