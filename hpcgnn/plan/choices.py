"""The names that an installation offers: those of the registries, and of a plugin. torch is loaded when they are asked
for.
"""

from hpcgnn.config import Choices


def registry_choices() -> Choices:
    """The names that the registries offer, those of models with the options that they use, and the rules between
    options.
    """
    from hpcgnn.nn.norm import NORM_LAYERS
    from hpcgnn.nn.registry import MODELS
    from hpcgnn.plan.rules import check_options
    from hpcgnn.schedules.schedule_registry import SCHEDULES

    models = {name: entry.uses for name, entry in MODELS.items()}
    names = {"models": models, "norms": tuple(NORM_LAYERS), "schedules": tuple(SCHEDULES)}
    return {**names, "check": check_options}


def load_choices(plugin: str) -> Choices:
    """The same, with what a plugin registers."""
    from hpcgnn.nn.plugin import load_plugin

    load_plugin(plugin)
    return registry_choices()
