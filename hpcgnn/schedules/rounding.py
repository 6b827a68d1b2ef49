"""The Wire that the options ask for, with draws from the run's randomness."""

from hpcgnn.comm import Communicator
from hpcgnn.exchange.widths import Widths
from hpcgnn.exchange.wire import Wire
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.options import ScheduleConfig

#: Bits of a number of the halo in the mean, with --halo-dtype auto.
AUTO_BITS = 4.0


def make_wire(options: ScheduleConfig, local: LocalGraph, comm: Communicator, random: Randomness) -> Wire:
    """options: ScheduleConfig; local: LocalGraph; random: Randomness, whose epoch is the present one."""
    widths = Widths(comm, AUTO_BITS) if options.halo_dtype == "auto" else None
    return Wire(options.halo_dtype, local.original_id, lambda number: random.key(Purpose.ROUNDING, number), widths)
