"""Sequential aggregation and rematerialization (Mostafa, MLSys'22): full halo, all-reduce at every step."""

from hpcgnn.comm import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.site import Facts
from hpcgnn.options import ScheduleConfig
from hpcgnn.schedules.approximate import ApproximateInTraining
from hpcgnn.schedules.base import HaloPolicy, Schedule, ScheduleEntry
from hpcgnn.schedules.dropped_halo import DroppedHalo, Dropping
from hpcgnn.schedules.full_halo import FullHalo
from hpcgnn.schedules.rounding import make_wire
from hpcgnn.schedules.sync import AllreduceEveryStep
from hpcgnn.traits import ScheduleTraits


def build_sar(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """The full-batch schedule for a LocalGraph; exact but for --halo-dtype. config: Config; random: Randomness."""
    return Schedule(
        full_halo(local, comm, buffers, config.schedule, random, config.model.edge_dropout),
        AllreduceEveryStep(comm, config.schedule.reduce_dtype),
    )


def full_halo(
    local: LocalGraph,
    comm: Communicator,
    buffers: HaloBuffers,
    options: ScheduleConfig,
    random: Randomness,
    edge_dropout: float = 0.0,
) -> HaloPolicy:
    """The halo policy of `sar`. options: ScheduleConfig; edge_dropout: the rate of it in training."""
    facts = Facts(local, comm)
    exact = FullHalo(local, comm, buffers, facts=facts)
    wire = make_wire(options, local, random)
    if edge_dropout:
        dropped = DroppedHalo(local, comm, buffers, wire, facts, Dropping(exact, edge_dropout, random))
        return ApproximateInTraining(exact, dropped)
    if options.halo_dtype == "fp32":
        return exact
    return ApproximateInTraining(exact, FullHalo(local, comm, buffers, wire, facts))


SCHEDULE = ScheduleEntry(
    build_sar,
    ScheduleTraits(
        exact_epochs=True,
        changing_input=True,
        partial_sums="always",
        within_memory=True,
        whole_steps=True,
        sums_gradients=True,
        sums_by_layer=True,
        narrows_rows=True,
        drops_edges=True,
    ),
)
