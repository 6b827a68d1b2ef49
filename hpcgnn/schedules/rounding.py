"""The Wire that the options ask for, with draws from the run's randomness."""

from hpcgnn.exchange.wire import Wire
from hpcgnn.ops.draws import Purpose


def make_wire(options, local, random):
    """options: ScheduleConfig; local: LocalGraph; random: Randomness, whose epoch is the present one."""
    return Wire(options.halo_dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number))
