"""Where the data of a job lie: in memory, unless an extra puts some of them elsewhere."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcgnn.registry import Registry

if TYPE_CHECKING:
    from hpcgnn.comm.session import Session
    from hpcgnn.engine.probe import StepProbe
    from hpcgnn.engine.trainer import Trainer
    from hpcgnn.exchange.buffers import HaloBuffers
    from hpcgnn.graph.local import LocalGraph
    from hpcgnn.graph.own_rows import OwnRows
    from hpcgnn.memory.stored import StoredRows
    from hpcgnn.plan.run_plan import RunPlan


class MemoryPolicy:
    """Leaves all data in memory."""

    def features(self, local: "LocalGraph", source: "OwnRows") -> "StoredRows | None":
        """The features of a share, written elsewhere; None: they are read into memory. Collective. local: the share
        without its features.
        """
        return None

    def reads_in_place(self, local: "LocalGraph") -> bool:
        """Whether ranks of a node may read each other's rows in place, where it can pay. Collective."""
        return True

    def begin(self, trainer: "Trainer") -> None:
        """Before a trainer's first step, or evaluation. Collective."""


#: make(plan, session, buffers, probe, learns) -> MemoryPolicy, or None. The first that there is, is the job's.
MEMORY_POLICIES: Registry[Callable[["RunPlan", "Session", "HaloBuffers", "StepProbe", bool], MemoryPolicy | None]] = (
    Registry("memory policy")
)


def memory_policy(
    plan: "RunPlan", session: "Session", buffers: "HaloBuffers", probe: "StepProbe", learns: bool
) -> MemoryPolicy:
    """The policy of a job. learns: whether it trains a model."""
    found = (make(plan, session, buffers, probe, learns) for make in MEMORY_POLICIES.values())
    return next((policy for policy in found if policy is not None), MemoryPolicy())
