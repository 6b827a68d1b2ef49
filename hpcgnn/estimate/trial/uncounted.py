"""The runs that a trial cannot count, each with its refusal."""

from hpcgnn.errors import ConfigError
from hpcgnn.plan.run_plan import RunPlan


def check_counted(plan: RunPlan) -> None:
    """Raise ConfigError for a run whose messages are not counted."""
    spec = plan.spec
    if spec.edge_dropout and spec.kept is not None:
        raise ConfigError(
            f"estimate does not count the degrees that ranks tell each other in every epoch with --edge-dropout "
            f"{spec.edge_dropout:g} and --precision mixed; expected --precision fp32, or no --edge-dropout"
        )


def check_known(plan: RunPlan) -> None:
    """Raise ConfigError for a run that no numbers of a graph describe."""
    options = plan.config.schedule
    if plan.on_shares:
        raise ConfigError(
            f"--schedule {options.schedule} with --steps {options.steps} computes shares of the clusters, and --stats "
            "has no clusters; expected --graph, --steps 1, or --schedule sar"
        )
