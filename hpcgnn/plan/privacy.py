"""`--private-features`: features of nodes may leave their rank once in a run, as `lazy` sends them, and not again.

The rule covers the rows of the features themselves, as in the file or after dropout. It does not cover products of
features with trained parameters. Every model that transforms before it aggregates sends such products.
"""

from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.plan.rules import Selection


def check_privacy(config: Config, spec: ModelSpec) -> None:
    """Raise ConfigError if this configuration would send features of nodes more than once in a run."""
    options = config.schedule
    if not options.private_features:
        return
    again = MODELS[spec.model].sends_input(spec) or config.data.inductive
    entry = Selection(config).entry
    if entry.sends_once(config):
        again = again and not entry.halo_copies(config) and not spec.constant_input
        remedy = "use --frozen-halo keep"
    else:
        remedy = (
            "use --schedule lazy without --finetune, or --keep-input always without --input-dropout raw where "
            "the model is gcn, sage, gin or sgc"
        )
    if again:
        raise ConfigError(
            f"--private-features: --schedule {options.schedule} with --model {spec.model} and these widths would "
            f"send the features of nodes to other ranks in every epoch, expected at most once in a run; {remedy}"
        )
