"""Sequential aggregation and rematerialization (Mostafa, MLSys'22): full halo, all-reduce at every step."""

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Randomness
from hpcgnn.ops.operator_context import HaloFacts
from hpcgnn.schedules.base import AllreduceEveryStep, HaloPolicy, Schedule, ScheduleEntry, changing_edges
from hpcgnn.schedules.full_halo import ApproximateInTraining, FullHalo, make_wire
from hpcgnn.traits import ScheduleTraits


def build_sar(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> Schedule:
    """The full-batch schedule for a LocalGraph; exact but for --halo-dtype. config: Config; random: Randomness."""
    edges = changing_edges(config)
    halo = (full_halo if edges is None else edges.halo)(local, comm, buffers, config, random)
    return Schedule(halo, AllreduceEveryStep(comm))


def full_halo(
    local: LocalGraph, comm: Communicator, buffers: HaloBuffers, config: Config, random: Randomness
) -> HaloPolicy:
    """The halo policy of `sar` on all edges."""
    facts = HaloFacts(local, comm)
    exact = FullHalo(local, comm, buffers, facts=facts)
    if config.schedule.halo_dtype == "fp32":
        return exact
    wire = make_wire(config.schedule, local, random)
    return ApproximateInTraining(exact, FullHalo(local, comm, buffers, wire, facts))


SCHEDULE = ScheduleEntry(
    build_sar,
    ScheduleTraits(
        exact_epochs=True,
        changing_input=True,
        partial_sums="always",
        within_memory=True,
        narrows_rows=True,
    ),
)
