"""The runs that a trial cannot count, each with its refusal."""

from hpcgnn.errors import ConfigError
from hpcgnn.plan.run_plan import RunPlan


def check_counted(plan: RunPlan) -> None:
    """Raise ConfigError for a run whose messages are not counted."""
    spec, options = plan.spec, plan.config.schedule
    if spec.edge_dropout and spec.kept is not None:
        raise ConfigError(
            f"estimate does not count the degrees that ranks tell each other in every epoch with --edge-dropout "
            f"{spec.edge_dropout:g} and --precision mixed; expected --precision fp32, or no --edge-dropout"
        )
    if plan.schedule.by_shares and options.steps > 1:
        raise ConfigError(
            f"estimate does not count steps on shares of the clusters, got --schedule {options.schedule} with --steps "
            f"{options.steps}; expected --steps 1, or --schedule sar, whose epoch sends as many rows"
        )
