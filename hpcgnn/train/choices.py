"""The names that an installation offers: those of the registries, and of a plugin. torch is loaded when they are asked
for.
"""

from hpcgnn.config import Choices


def registry_choices() -> Choices:
    """The names that the registries offer, those of models with the options that they use."""
    from hpcgnn.nn.norm import NORM_LAYERS
    from hpcgnn.nn.registry import MODELS
    from hpcgnn.schedules.schedule_registry import SCHEDULES

    models = {name: entry.uses for name, entry in MODELS.items()}
    return {"models": models, "norms": tuple(NORM_LAYERS), "schedules": tuple(SCHEDULES)}


def load_choices(plugin: str) -> Choices:
    """The same, with what a plugin registers."""
    from hpcgnn.nn.plugin import load_plugin

    load_plugin(plugin)
    return registry_choices()
