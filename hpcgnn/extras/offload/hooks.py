"""The options of a memory limit, the policy of a job that has one, and its part of an estimate."""

from typing import Any

from hpcgnn.cli import trained_runs
from hpcgnn.comm.ledger import KINDS
from hpcgnn.comm.session import Session
from hpcgnn.config import Config, declare
from hpcgnn.engine.memory_policy import MEMORY_POLICIES, MemoryPolicy
from hpcgnn.extras.offload.options import READ, WRITTEN, OffloadConfig, has_limit, schedules_of_a_limit
from hpcgnn.plan.rules import TRAINING_RULES
from hpcgnn.plan.run_plan import ESTIMATED, NEEDS_MESSAGES, RunPlan


def make_policy(plan: RunPlan, session: Session, buffers: Any, probe: Any, learns: bool) -> MemoryPolicy | None:
    """The policy of a job with a limit."""
    from hpcgnn.extras.offload.limits import memory_limit
    from hpcgnn.extras.offload.policy import WithinLimit

    limit = memory_limit(plan.config, session)
    return None if limit is None else WithinLimit(plan, session, buffers, probe, learns, limit)


def make_addition(config: Config) -> Any:
    """The part of an estimate on a limit."""
    from hpcgnn.extras.offload.estimate import LimitTable

    return LimitTable(config) if has_limit(config) else None


declare("run", "offload", OffloadConfig)
MEMORY_POLICIES.register("offload", make_policy)
ESTIMATED.register("offload", make_addition)
TRAINING_RULES.append(schedules_of_a_limit)
NEEDS_MESSAGES.append(has_limit)
trained_runs.OPTIONS += ("memory", "scratch")
KINDS[WRITTEN] = "nothing leaves the node: what a step keeps, written to the scratch file"
KINDS[READ] = "nothing leaves the node: what a step keeps, read from the scratch file"
